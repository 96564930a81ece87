"""From weights to the gradient that an optimizer gets.

gradient          the update, on one process or several; what a safeguard may look at
preconditioner    scores measured as an adaptive optimizer steps
"""

from .gradient import ONE, LocalUpdate, update_of
from .preconditioner import Diagonal, Geometry, diagonal, require_geometry
