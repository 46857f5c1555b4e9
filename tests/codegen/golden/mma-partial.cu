// kernel
// memory program partial: 1 x 1 warps over 16 rows of g; 53248 bytes shared
//   ring r0: 1 x 4096 bytes at 0
//     t3[g, d]: 16 x 128 bf16 at 0, pitch 256, mask 7, copy16
//   ring r1: 3 x 16384 bytes at 4096
//     t4[s, d]: 32 x 128 bf16 at 0, pitch 256, mask 7, copy16
//     t8[s, e]: 32 x 128 bf16 at 8192, pitch 256, mask 7, copy16
//   role all
//     fetch r0 of block +0
//     clear r0 to -inf
//     clear m6 to 0.0
//     clear r9 to 0.0
//     before blocks of s
//       fetch r1 of block +0
//       commit
//       fetch r1 of block +1
//       commit
//     for each block of s
//       wait until 1 groups are pending
//       barrier
//       fetch r1 of block +2
//       commit
//       clear m2 to 0.0
//       multiply bf16: m2 += t3 x t4 over 128 of d
//       t1 = (m2 * 0.08838835)
//       keep r0_before <- r0
//       fold r0 <- max of t1, carried settled
//       t5 = exp((r0_before - r0))
//       t7 = exp((t1 - r0))
//       rescale m6 by t5
//       pack t7_bf16 <- t7 as bf16
//       multiply bf16: m6 += t7_bf16 x t8 over 32 of s
//       fold r9 <- sum of t7, carried per thread
//     settle r9 by sum
//     store m <- r0
//     store l <- r9
//     store o <- m6
extern "C" __global__ void __launch_bounds__(32, 1)
k_partial(const nt_u16* __restrict__ g_0_q, const nt_u16* __restrict__ g_1_k, const nt_u16* __restrict__ g_2_v, float* __restrict__ g_3_m, float* __restrict__ g_4_l, float* __restrict__ g_5_o) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const nt_u32 shared = nt_shared(memory);
  const int tid = threadIdx.x, lane = tid & 31;
  const int warp_row = 0;
  const int lane_column = (lane & 3) * 2;
  const int linear = blockIdx.x;
  const int z = linear;
  const int inner = 0;
  const int band = inner, in_band = 0;
  const int high = 1;
  const int tile_row = band + in_band % high, tile_column = in_band / high;
  const int o2_g = tile_row * 4;
  const int o5_e = tile_column * 128;
  const int o4_p = z % 16;
  const int o3_t = z / 16 % 1;
  const int o1_hk = z / 16 % 8;
  const int o0_b = z / 16 / 8 % 4;
  const int row0 = o2_g + warp_row * 16 + (lane >> 2);
  float t_r0[1][2];
  float t_m6[1][16][4];
  float t_r9[1][2];
  float t_m2[1][4][4];
  float t_t1[1][4][4];
  float t_r0_before[1][2];
  float t_t5[1][2];
  float t_t7[1][4][4];
  nt_u32 t_t7_bf16[1][2][4];
  const int s_r0_t3 = o0_b * 4096 + o1_hk * 512 + o3_t * 128 + o2_g * 128 + tid / 16 * 128 + tid % 16 * 8;
  {
    const nt_u16* from = g_0_q + s_r0_t3;
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      const int r = tid / 16 + i * 2, c = tid % 16;
      nt_copy16_part(shared + r * 256 + (c ^ (r & 7)) * 16, from + i * 2 * 128, (o2_g + r < 4 ? 16 : 0));
    }
  }
  // clear r0 to -inf
  #pragma unroll
  for (int i = 0; i < 1; i++)
    #pragma unroll
    for (int h = 0; h < 2; h++)
      t_r0[i][h] = -nt_inf();
  // clear m6 to 0.0
  #pragma unroll
  for (int i = 0; i < 1; i++)
    #pragma unroll
    for (int h = 0; h < 2; h++)
      #pragma unroll
      for (int j = 0; j < 16; j++)
        #pragma unroll
        for (int q = 0; q < 2; q++)
          t_m6[i][j][2 * h + q] = 0.0f;
  // clear r9 to 0.0
  #pragma unroll
  for (int i = 0; i < 1; i++)
    #pragma unroll
    for (int h = 0; h < 2; h++)
      t_r9[i][h] = 0.0f;
  {  // blocks of s
    const int first0 = 0;
    const int stop0 = 8;
    const int s_r1_t4 = o0_b * 4194304 + o1_hk * 524288 + o4_p * 32768 + tid / 16 * 128 + tid % 16 * 8;
    const int s_r1_t8 = o0_b * 4194304 + o1_hk * 524288 + o4_p * 32768 + o5_e + tid / 16 * 128 + tid % 16 * 8;
    int slot0 = 0;
    int filling0 = 2;
    if (first0 < stop0) {
      const int next = first0;
      const int n6_s = next * 32;
      {
        const nt_u16* from = g_1_k + (s_r1_t4 + n6_s * 128);
        #pragma unroll
        for (int i = 0; i < 16; i++) {
          const int r = tid / 16 + i * 2, c = tid % 16;
          nt_copy16((shared + 4096) + r * 256 + (c ^ (r & 7)) * 16, from + i * 2 * 128);
        }
      }
      {
        const nt_u16* from = g_2_v + (s_r1_t8 + n6_s * 128);
        #pragma unroll
        for (int i = 0; i < 16; i++) {
          const int r = tid / 16 + i * 2, c = tid % 16;
          nt_copy16((shared + 4096) + 8192 + r * 256 + (c ^ (r & 7)) * 16, from + i * 2 * 128);
        }
      }
    }
    nt_copy_commit();
    if (first0 + 1 < stop0) {
      const int next = first0 + 1;
      const int n6_s = next * 32;
      {
        const nt_u16* from = g_1_k + (s_r1_t4 + n6_s * 128);
        #pragma unroll
        for (int i = 0; i < 16; i++) {
          const int r = tid / 16 + i * 2, c = tid % 16;
          nt_copy16((shared + 4096 + 16384) + r * 256 + (c ^ (r & 7)) * 16, from + i * 2 * 128);
        }
      }
      {
        const nt_u16* from = g_2_v + (s_r1_t8 + n6_s * 128);
        #pragma unroll
        for (int i = 0; i < 16; i++) {
          const int r = tid / 16 + i * 2, c = tid % 16;
          nt_copy16((shared + 4096 + 16384) + 8192 + r * 256 + (c ^ (r & 7)) * 16, from + i * 2 * 128);
        }
      }
    }
    nt_copy_commit();
    #pragma unroll 1
    for (int step0 = first0; step0 < stop0; step0++) {
      const nt_u32 in_r1 = shared + 4096 + slot0 * 16384;
      nt_copy_wait<1>();
      __syncthreads();
      if (step0 + 2 < stop0) {
        const int next = step0 + 2;
        const int n6_s = next * 32;
        {
          const nt_u16* from = g_1_k + (s_r1_t4 + n6_s * 128);
          #pragma unroll
          for (int i = 0; i < 16; i++) {
            const int r = tid / 16 + i * 2, c = tid % 16;
            nt_copy16((shared + 4096 + filling0 * 16384) + r * 256 + (c ^ (r & 7)) * 16, from + i * 2 * 128);
          }
        }
        {
          const nt_u16* from = g_2_v + (s_r1_t8 + n6_s * 128);
          #pragma unroll
          for (int i = 0; i < 16; i++) {
            const int r = tid / 16 + i * 2, c = tid % 16;
            nt_copy16((shared + 4096 + filling0 * 16384) + 8192 + r * 256 + (c ^ (r & 7)) * 16, from + i * 2 * 128);
          }
        }
      }
      nt_copy_commit();
      // clear m2 to 0.0
      #pragma unroll
      for (int i = 0; i < 1; i++)
        #pragma unroll
        for (int h = 0; h < 2; h++)
          #pragma unroll
          for (int j = 0; j < 4; j++)
            #pragma unroll
            for (int q = 0; q < 2; q++)
              t_m2[i][j][2 * h + q] = 0.0f;
      // multiply bf16: m2 += t3 x t4 over 128 of d
      {
        const int ar = (lane & 7) + ((lane >> 3) & 1) * 8;
        const nt_u32 a = shared + ar * 256;
        const nt_u32 ax = ((lane >> 4) ^ ((ar >> 0) & 7)) << 4;
        const int b0r = (lane & 7) + (lane >> 4) * 8;
        const nt_u32 b0 = in_r1 + b0r * 256;
        const nt_u32 b0x = (((lane >> 3) & 1) ^ ((b0r >> 0) & 7)) << 4;
        nt_u32 fa[2][1][4];
        nt_u32 fb0[2][2][4];
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          nt_fragments(fa[0][i], a + i * 4096 + ax);
        }
        #pragma unroll
        for (int j = 0; j < 2; j++) {
          nt_fragments(fb0[0][j], b0 + j * 4096 + b0x);
        }
        #pragma unroll
        for (int k = 0; k < 8; k++) {
          if (k + 1 < 8) {
            #pragma unroll
            for (int i = 0; i < 1; i++) {
              nt_fragments(fa[((k + 1) & 1)][i], a + i * 4096 + (ax ^ ((k + 1) * 32)));
            }
            #pragma unroll
            for (int j = 0; j < 2; j++) {
              nt_fragments(fb0[((k + 1) & 1)][j], b0 + j * 4096 + (b0x ^ ((k + 1) * 32)));
            }
          }
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            #pragma unroll
            for (int i = 0; i < 1; i++) {
              nt_mma_bf16(t_m2[i][2 * j], fa[(k & 1)][i], fb0[(k & 1)][j][0], fb0[(k & 1)][j][1]);
              nt_mma_bf16(t_m2[i][2 * j + 1], fa[(k & 1)][i], fb0[(k & 1)][j][2], fb0[(k & 1)][j][3]);
            }
          }
        }
      }
      // t1 = (m2 * 0.08838835)
      {
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int h = 0; h < 2; h++) {
            #pragma unroll
            for (int j = 0; j < 4; j++) {
              #pragma unroll
              for (int q = 0; q < 2; q++) {
                t_t1[i][j][2 * h + q] = (t_m2[i][j][2 * h + q] * 0.088388346f);
              }
            }
          }
        }
      }
      #pragma unroll
      for (int i = 0; i < 1; i++)
        #pragma unroll
        for (int h = 0; h < 2; h++)
          t_r0_before[i][h] = t_r0[i][h];
      // fold r0 <- max of t1, carried settled
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int h = 0; h < 2; h++) {
          float v = t_t1[i][0][2 * h];
          v = nt_max(v, t_t1[i][0][2 * h + 1]);
          #pragma unroll
          for (int j = 1; j < 4; j++) {
            v = nt_max(v, t_t1[i][j][2 * h]);
            v = nt_max(v, t_t1[i][j][2 * h + 1]);
          }
          v = nt_max(v, nt_shuffle_xor(v, 1));
          v = nt_max(v, nt_shuffle_xor(v, 2));
          t_r0[i][h] = nt_max(t_r0[i][h], v);
        }
      }
      // t5 = exp((r0_before - r0))
      {
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int h = 0; h < 2; h++) {
            t_t5[i][h] = (nt_ex2(((t_r0_before[i][h] - t_r0[i][h]) * 1.442695f)));
          }
        }
      }
      // t7 = exp((t1 - r0))
      {
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int h = 0; h < 2; h++) {
            const float r0 = t_r0[i][h] * 1.442695f;
            #pragma unroll
            for (int j = 0; j < 4; j++) {
              #pragma unroll
              for (int q = 0; q < 2; q++) {
                t_t7[i][j][2 * h + q] = (nt_ex2(((t_t1[i][j][2 * h + q] * 1.442695f) - r0)));
              }
            }
          }
        }
      }
      // rescale m6 by t5
      {
        bool moved = false;
        #pragma unroll
        for (int i = 0; i < 1; i++)
          #pragma unroll
          for (int h = 0; h < 2; h++)
            moved |= !(t_t5[i][h] == 1.0f);
        if (nt_any(moved)) {
          #pragma unroll
          for (int i = 0; i < 1; i++)
            #pragma unroll
            for (int h = 0; h < 2; h++)
              #pragma unroll
              for (int j = 0; j < 16; j++)
                #pragma unroll
                for (int q = 0; q < 2; q++)
                  t_m6[i][j][2 * h + q] = nt_repair(t_m6[i][j][2 * h + q], t_t5[i][h]);
        }
      }
      // pack t7_bf16 <- t7 as bf16
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int k = 0; k < 2; k++) {
          t_t7_bf16[i][k][0] = nt_bf16x2_of_f32(t_t7[i][2 * k][0], t_t7[i][2 * k][1]);
          t_t7_bf16[i][k][1] = nt_bf16x2_of_f32(t_t7[i][2 * k][2], t_t7[i][2 * k][3]);
          t_t7_bf16[i][k][2] = nt_bf16x2_of_f32(t_t7[i][2 * k + 1][0], t_t7[i][2 * k + 1][1]);
          t_t7_bf16[i][k][3] = nt_bf16x2_of_f32(t_t7[i][2 * k + 1][2], t_t7[i][2 * k + 1][3]);
        }
      }
      // multiply bf16: m6 += t7_bf16 x t8 over 32 of s
      {
        const int b0r = (lane & 7) + ((lane >> 3) & 1) * 8;
        const nt_u32 b0 = in_r1 + 8192 + b0r * 256;
        const nt_u32 b0x = (((lane >> 4)) ^ ((b0r >> 0) & 7)) << 4;
        nt_u32 fb0[2][8][4];
        #pragma unroll
        for (int j = 0; j < 8; j++) {
          nt_fragments_transposed(fb0[0][j], b0 + (b0x ^ (j * 32)));
        }
        #pragma unroll
        for (int k = 0; k < 2; k++) {
          if (k + 1 < 2) {
            #pragma unroll
            for (int j = 0; j < 8; j++) {
              nt_fragments_transposed(fb0[((k + 1) & 1)][j], b0 + (k + 1) * 4096 + (b0x ^ (j * 32)));
            }
          }
          #pragma unroll
          for (int j = 0; j < 8; j++) {
            #pragma unroll
            for (int i = 0; i < 1; i++) {
              nt_mma_bf16(t_m6[i][2 * j], t_t7_bf16[i][k], fb0[(k & 1)][j][0], fb0[(k & 1)][j][1]);
              nt_mma_bf16(t_m6[i][2 * j + 1], t_t7_bf16[i][k], fb0[(k & 1)][j][2], fb0[(k & 1)][j][3]);
            }
          }
        }
      }
      // fold r9 <- sum of t7, carried per thread
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int h = 0; h < 2; h++) {
          float v = nt_repair(t_r9[i][h], t_t5[i][h]) + t_t7[i][0][2 * h];
          v = v + t_t7[i][0][2 * h + 1];
          #pragma unroll
          for (int j = 1; j < 4; j++) {
            v = v + t_t7[i][j][2 * h];
            v = v + t_t7[i][j][2 * h + 1];
          }
          t_r9[i][h] = v;
        }
      }
      slot0 = slot0 == 2 ? 0 : slot0 + 1;
      filling0 = filling0 == 2 ? 0 : filling0 + 1;
    }
  }
  // settle r9 by sum
  #pragma unroll
  for (int i = 0; i < 1; i++)
    #pragma unroll
    for (int h = 0; h < 2; h++)
      { t_r9[i][h] = t_r9[i][h] + nt_shuffle_xor(t_r9[i][h], 1); t_r9[i][h] = t_r9[i][h] + nt_shuffle_xor(t_r9[i][h], 2); }
  // store m <- r0
  {
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      #pragma unroll
      for (int h = 0; h < 2; h++) {
        const int p_row = row0 + i * 16 + h * 8;
        if ((lane & 3) == 0 && p_row < 4) g_3_m[o0_b * 512 + o1_hk * 64 + p_row * 16 + o3_t * 16 + o4_p] = t_r0[i][h];
      }
    }
  }
  // store l <- r9
  {
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      #pragma unroll
      for (int h = 0; h < 2; h++) {
        const int p_row = row0 + i * 16 + h * 8;
        if ((lane & 3) == 0 && p_row < 4) g_4_l[o0_b * 512 + o1_hk * 64 + p_row * 16 + o3_t * 16 + o4_p] = t_r9[i][h];
      }
    }
  }
  // store o <- m6
  {
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      #pragma unroll
      for (int h = 0; h < 2; h++) {
        const int p_row = row0 + i * 16 + h * 8;
        #pragma unroll
        for (int j = 0; j < 16; j++) {
          #pragma unroll
          for (int q = 0; q < 2; q++) {
            const int p_col = o5_e + lane_column + j * 8 + q;
            if (q == 0 && p_row < 4) *(float2*)(g_5_o + (o0_b * 65536 + o1_hk * 8192 + p_row * 2048 + o3_t * 2048 + o4_p * 128 + p_col)) = make_float2(t_m6[i][j][2 * h], t_m6[i][j][2 * h + 1]);
          }
        }
      }
    }
  }
}
