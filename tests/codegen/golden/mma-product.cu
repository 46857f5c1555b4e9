// kernel
// memory program gemm: 2 x 2 warps over 128 rows of m; 98304 bytes shared
//   ring r0: 3 x 32768 bytes at 0
//     a[m, k]: 128 x 64 bf16 at 0, pitch 128, mask 7, copy16
//     b[n, k]: 128 x 64 bf16 at 16384, pitch 128, mask 7, copy16
//   role all
//     clear acc to 0.0
//     before blocks of k
//       fetch r0 of block +0
//       commit
//       fetch r0 of block +1
//       commit
//     for each block of k
//       wait until 1 groups are pending
//       barrier
//       fetch r0 of block +2
//       commit
//       multiply bf16: acc += a x b over 64 of k
//     y = ((acc + bias[n]) * sigmoid((((acc + bias[n]) + ((((acc + bias[n]) * (acc + bias[n])) * (acc + bias[n])) * 0.044715)) * 1.595769)))
//     wait until 0 groups are pending
//     barrier
//     store C <- y, staged
extern "C" __global__ void __launch_bounds__(128, 1)
k_gemm(const nt_u16* __restrict__ g_0_A, const nt_u16* __restrict__ g_1_B, const nt_u16* __restrict__ g_2_bias, nt_u16* __restrict__ g_3_C) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const nt_u32 shared = nt_shared(memory);
  const int tid = threadIdx.x, lane = tid & 31;
  const int warp = tid >> 5;
  const int warp_row = warp % 2;
  const int warp_column = warp / 2;
  const int lane_column = (lane & 3) * 2;
  const int linear = blockIdx.x;
  const int inner = linear % 1024;
  const int band = inner / 256, in_band = inner % 256;
  const int high = 8;
  const int tile_row = band * 8 + in_band % high, tile_column = in_band / high;
  const int o0_m = tile_row * 128;
  const int o1_n = tile_column * 128;
  float t_acc[4][8][4];
  float t_y[4][8][4];
  // clear acc to 0.0
  #pragma unroll
  for (int i = 0; i < 4; i++)
    #pragma unroll
    for (int h = 0; h < 2; h++)
      #pragma unroll
      for (int j = 0; j < 8; j++)
        #pragma unroll
        for (int q = 0; q < 2; q++)
          t_acc[i][j][2 * h + q] = 0.0f;
  {  // blocks of k
    const int first0 = 0;
    const int stop0 = 64;
    const int s_r0_a = o0_m * 4096 + tid / 8 * 4096 + tid % 8 * 8;
    const int s_r0_b = o1_n * 4096 + tid / 8 * 4096 + tid % 8 * 8;
    int slot0 = 0;
    int filling0 = 2;
    if (first0 < stop0) {
      const int next = first0;
      const int n2_k = next * 64;
      {
        const nt_u16* from = g_0_A + (s_r0_a + n2_k);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
          const int r = tid / 8 + i * 16, c = tid % 8;
          nt_copy16(shared + r * 128 + (c ^ (r & 7)) * 16, from + i * 16 * 4096);
        }
      }
      {
        const nt_u16* from = g_1_B + (s_r0_b + n2_k);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
          const int r = tid / 8 + i * 16, c = tid % 8;
          nt_copy16(shared + 16384 + r * 128 + (c ^ (r & 7)) * 16, from + i * 16 * 4096);
        }
      }
    }
    nt_copy_commit();
    if (first0 + 1 < stop0) {
      const int next = first0 + 1;
      const int n2_k = next * 64;
      {
        const nt_u16* from = g_0_A + (s_r0_a + n2_k);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
          const int r = tid / 8 + i * 16, c = tid % 8;
          nt_copy16((shared + 32768) + r * 128 + (c ^ (r & 7)) * 16, from + i * 16 * 4096);
        }
      }
      {
        const nt_u16* from = g_1_B + (s_r0_b + n2_k);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
          const int r = tid / 8 + i * 16, c = tid % 8;
          nt_copy16((shared + 32768) + 16384 + r * 128 + (c ^ (r & 7)) * 16, from + i * 16 * 4096);
        }
      }
    }
    nt_copy_commit();
    #pragma unroll 1
    for (int step0 = first0; step0 < stop0; step0++) {
      const nt_u32 in_r0 = shared + slot0 * 32768;
      nt_copy_wait<1>();
      __syncthreads();
      if (step0 + 2 < stop0) {
        const int next = step0 + 2;
        const int n2_k = next * 64;
        {
          const nt_u16* from = g_0_A + (s_r0_a + n2_k);
          #pragma unroll
          for (int i = 0; i < 8; i++) {
            const int r = tid / 8 + i * 16, c = tid % 8;
            nt_copy16((shared + filling0 * 32768) + r * 128 + (c ^ (r & 7)) * 16, from + i * 16 * 4096);
          }
        }
        {
          const nt_u16* from = g_1_B + (s_r0_b + n2_k);
          #pragma unroll
          for (int i = 0; i < 8; i++) {
            const int r = tid / 8 + i * 16, c = tid % 8;
            nt_copy16((shared + filling0 * 32768) + 16384 + r * 128 + (c ^ (r & 7)) * 16, from + i * 16 * 4096);
          }
        }
      }
      nt_copy_commit();
      // multiply bf16: acc += a x b over 64 of k
      {
        const int ar = warp_row * 64 + (lane & 7) + ((lane >> 3) & 1) * 8;
        const nt_u32 a = in_r0 + ar * 128;
        const nt_u32 ax = ((lane >> 4) ^ ((ar >> 0) & 7)) << 4;
        const int b0r = warp_column * 64 + (lane & 7) + (lane >> 4) * 8;
        const nt_u32 b0 = in_r0 + 16384 + b0r * 128;
        const nt_u32 b0x = (((lane >> 3) & 1) ^ ((b0r >> 0) & 7)) << 4;
        nt_u32 fa[2][4][4];
        nt_u32 fb0[2][4][4];
        #pragma unroll
        for (int i = 0; i < 4; i++) {
          nt_fragments(fa[0][i], a + i * 2048 + ax);
        }
        #pragma unroll
        for (int j = 0; j < 4; j++) {
          nt_fragments(fb0[0][j], b0 + j * 2048 + b0x);
        }
        #pragma unroll
        for (int k = 0; k < 4; k++) {
          if (k + 1 < 4) {
            #pragma unroll
            for (int i = 0; i < 4; i++) {
              nt_fragments(fa[((k + 1) & 1)][i], a + i * 2048 + (ax ^ ((k + 1) * 32)));
            }
            #pragma unroll
            for (int j = 0; j < 4; j++) {
              nt_fragments(fb0[((k + 1) & 1)][j], b0 + j * 2048 + (b0x ^ ((k + 1) * 32)));
            }
          }
          #pragma unroll
          for (int j = 0; j < 4; j++) {
            #pragma unroll
            for (int i = 0; i < 4; i++) {
              nt_mma_bf16(t_acc[i][2 * j], fa[(k & 1)][i], fb0[(k & 1)][j][0], fb0[(k & 1)][j][1]);
              nt_mma_bf16(t_acc[i][2 * j + 1], fa[(k & 1)][i], fb0[(k & 1)][j][2], fb0[(k & 1)][j][3]);
            }
          }
        }
      }
      slot0 = slot0 == 2 ? 0 : slot0 + 1;
      filling0 = filling0 == 2 ? 0 : filling0 + 1;
    }
  }
  // y = ((acc + bias[n]) * sigmoid((((acc + bias[n]) + ((((acc + bias[n]) * (acc + bias[n])) * (a...
  {
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      #pragma unroll
      for (int h = 0; h < 2; h++) {
        #pragma unroll
        for (int j = 0; j < 8; j++) {
          const int p_pair = o1_n + warp_column * 64 + lane_column + j * 8;
          nt_u32 w0[1];
          nt_read(w0, g_2_bias + p_pair);
          #pragma unroll
          for (int q = 0; q < 2; q++) {
            const float x0 = t_acc[i][j][2 * h + q] + (nt_f32_of_bf16((nt_u16)(w0[q >> 1] >> (q & 1) * 16)));
            t_y[i][j][2 * h + q] = (x0 * (nt_sigmoid_fast(((x0 + (((x0 * x0) * x0) * 0.044715f)) * 1.5957692f))));
          }
        }
      }
    }
  }
  nt_copy_wait<0>();
  __syncthreads();
  // store C <- y, staged
  {
    const nt_u32 staging = shared + warp * 2304;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      #pragma unroll
      for (int h = 0; h < 2; h++)
        #pragma unroll
        for (int j = 0; j < 8; j++)
          nt_store4(staging + (h * 8 + (lane >> 2)) * 144 + (j * 8 + lane_column) * 2, nt_bf16x2_of_f32(t_y[i][j][2 * h], t_y[i][j][2 * h + 1]));
      nt_warp_sync();
      #pragma unroll
      for (int n = 0; n < 4; n++) {
        const int r = (lane + n * 32) / 8, c = (lane + n * 32) % 8;
        const int p_row = o0_m + warp_row * 64 + i * 16 + r;
        const int p_col = o1_n + warp_column * 64 + c * 8;
        nt_export16(g_3_C + (p_row * 4096 + p_col), staging + r * 144 + c * 16);
      }
      nt_warp_sync();
    }
  }
}
