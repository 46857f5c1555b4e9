"""Hopper (sm_90a): tile programs -> memory programs with warp roles -> CUDA.

```
covered    what is left to other emitters          shape      warpgroups of a block
formed     left operands and folds as values of registers (unpack: elements into them, and back)
streams    loops, and batches of products          place      operands and outputs as TMA sees them
rings      slots, and where all lies               values     arrays of registers, work on them
accuracy   functions whose readers need less       plan       the order of typed operations (memory)
simulate   the operations run symbolically: races, deadlocks, blocks that mix (roles: producer,
           consumer, former)
kernel     the text: grid, cursors, elements, indices, convert (right operands that warps form),
           products (wgmma), store; expectation: what the machine code must show
```
"""
