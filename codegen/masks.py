"""masks: placeholder for the pass"""

from nautile.codegen.tile import TileProgram


def with_mask_bounds(program: TileProgram) -> TileProgram:
    return program
