"""Games of OpenSpiel (Lanctot et al. 2019, arXiv:1908.09453): ``openspiel:breakthrough`` and the others that fit."""

from genpolicy_openspiel.game import OpenSpielGame as OpenSpielGame
