"""Workers on a cluster of Ray (https://www.ray.io, Apache-2.0): ``--cluster local`` or ``--cluster ADDRESS``."""
