"""Hopper (sm_90a): tile programs -> memory programs with warp roles -> CUDA.

```
covered    what is left to other emitters          shape      warpgroups of a block
streams    loops, and batches of products          place      operands and outputs as TMA sees them
rings      slots, and where all lies               values     arrays of registers, work on them
accuracy   functions whose readers need less       plan       the order of typed operations (memory)
simulate   the operations run symbolically: races, deadlocks, blocks that mix
kernel     the text: grid, cursors, elements, indices, products (wgmma), store; expectation: what
           the machine code must show
```
"""
