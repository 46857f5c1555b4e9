// Warp-wide matrix fragments (sm_80 and later). With g = lane / 4 and t = lane % 4:
//   accumulator d[4]   rows g, g, g + 8, g + 8; columns 2t, 2t + 1, 2t, 2t + 1 of a 16 x 8 tile
//   operand A a[4]     16 rows x 32 bytes: (g, low), (g + 8, low), (g, high), (g + 8, high)
//   operand B b[2]     8 columns x 32 bytes: low, high
// where a word of `low` holds bytes 4t..4t+3 and one of `high` bytes 16+4t.. of the 32 along k.
// Blocks are separated by blank lines; a kernel receives the blocks that it needs (codegen/headers.py).

NT_DEV void nt_fragments(nt_u32 (&r)[4], nt_u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

NT_DEV void nt_fragments_transposed(nt_u32 (&r)[4], nt_u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

NT_DEV void nt_mma_bf16(float (&d)[4], const nt_u32 (&a)[4], nt_u32 b0, nt_u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

NT_DEV void nt_mma_f16(float (&d)[4], const nt_u32 (&a)[4], nt_u32 b0, nt_u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

NT_DEV void nt_mma_tf32(float (&d)[4], const nt_u32 (&a)[4], nt_u32 b0, nt_u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

NT_DEV float nt_shuffle_xor(float x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }

NT_DEV bool nt_any(bool p) { return __any_sync(0xffffffffu, p) != 0; }

NT_DEV void nt_warp_sync() { __syncwarp(); }

// rounded to the ten bits that the tensor cores read, ties away from zero
NT_DEV nt_u32 nt_tf32_bits(nt_u32 x) {
  nt_u32 r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(__uint_as_float(x)));
  return r;
}

// f32 operands as two tf32 pieces each: hi * hi + hi * lo + lo * hi, added to d in f32 (the tensor
// cores' own accumulation cuts digits off). Ootomo, Yokota, "Recovering single precision accuracy
// from Tensor Cores while surpassing the FP32 theoretical peak performance", IJHPCA 2022.
NT_DEV void nt_pieces(nt_u32 (&high)[4], nt_u32 (&low)[4], const nt_u32 (&x)[4]) {
#pragma unroll
  for (int e = 0; e < 4; e++) {
    high[e] = nt_tf32_bits(x[e]);
    const float rest = __uint_as_float(x[e]) - __uint_as_float(high[e]);
    low[e] = x[e] == high[e] ? 0u : nt_tf32_bits(__float_as_uint(rest));
  }
}
NT_DEV void nt_mma_pieces(float (&d)[4], const nt_u32 (&ha)[4], const nt_u32 (&la)[4], nt_u32 hb0, nt_u32 hb1, nt_u32 lb0, nt_u32 lb1) {
  float sum[4] = {0.f, 0.f, 0.f, 0.f};
  nt_mma_tf32(sum, la, hb0, hb1);
  nt_mma_tf32(sum, ha, lb0, lb1);
  nt_mma_tf32(sum, ha, hb0, hb1);
#pragma unroll
  for (int e = 0; e < 4; e++) d[e] += sum[e];
}
