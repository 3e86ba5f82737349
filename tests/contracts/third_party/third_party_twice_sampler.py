"""A sampler that declares an option twice."""

from third_party_sampler import LeftToRight


class TwiceSampler(LeftToRight):
    options = LeftToRight.options * 2
