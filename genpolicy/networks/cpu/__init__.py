"""The CPU kernels, behind one door: ``attend``, ``linear``, ``Linear`` and ``Dropout``.

Each of them computes what torch's function of the same name does, and is torch's own function on other devices, in
lower precision, under ``torch.compile``, and where the environment has ``GENPOLICY_OWN_KERNELS=0``. On a CPU in full
precision they are faster forms; nothing else in genpolicy has to know.
"""

from genpolicy.networks.cpu.attention import attend
from genpolicy.networks.cpu.dropout import Dropout
from genpolicy.networks.cpu.linear import Linear, linear

__all__ = ["Dropout", "Linear", "attend", "linear"]
