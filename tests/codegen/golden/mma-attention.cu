// kernel
// memory program attention: 4 x 1 warps over 128 rows of q; 98304 bytes shared
//   ring r0: 1 x 32768 bytes at 0
//     qt[q, d]: 128 x 128 bf16 at 0, pitch 256, mask 7, copy16
//   ring r1: 2 x 32768 bytes at 32768
//     kt[t, d]: 64 x 128 bf16 at 0, pitch 256, mask 7, copy16
//     vt[t, e]: 64 x 128 bf16 at 16384, pitch 256, mask 7, copy16
//   role all
//     fetch r0 of block +0
//     clear mu to -inf
//     clear l to 0.0
//     clear o to 0.0
//     before blocks of t
//       fetch r1 of block +0
//       commit
//     for each block of t
//       wait until 0 groups are pending
//       barrier
//       fetch r1 of block +1
//       commit
//       clear s to 0.0
//       multiply bf16: s += qt x kt over 128 of d
//       x = s
//       m = where((t <= q), x, -inf), plain in whole blocks
//       keep mu_before <- mu
//       fold mu <- max of m, carried settled
//       r = exp(((mu_before * 0.08838835) - (mu * 0.08838835)))
//       p = exp(((m * 0.08838835) - (mu * 0.08838835)))
//       fold l <- sum of p, carried per thread
//       rescale o by r
//       pack p_bf16 <- p as bf16
//       multiply bf16: o += p_bf16 x vt over 64 of t
//     settle l by sum
//     y = (o * (1 / l))
//     wait until 0 groups are pending
//     barrier
//     store O <- y, staged
extern "C" __global__ void __launch_bounds__(128, 1)
k_attention(const nt_u16* __restrict__ g_0_Q, const nt_u16* __restrict__ g_1_K, const nt_u16* __restrict__ g_2_V, nt_u16* __restrict__ g_3_O) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const nt_u32 shared = nt_shared(memory);
  const int tid = threadIdx.x, lane = tid & 31;
  const int warp = tid >> 5;
  const int warp_row = warp % 4;
  const int lane_column = (lane & 3) * 2;
  const int linear = blockIdx.x;
  const int band = linear / 128, in_band = linear % 128;
  const int high = 4;
  const int z = band * 4 + in_band % high, tile_row = in_band / high;
  const int o1_q = (31 - tile_row) * 128;
  const int o0_h = z % 32;
  const int row0 = o1_q + warp_row * 32 + (lane >> 2);
  float t_mu[2][2];
  float t_l[2][2];
  float t_o[2][16][4];
  float t_s[2][8][4];
  float t_x[2][8][4];
  float t_m[2][8][4];
  float t_mu_before[2][2];
  float t_r[2][2];
  float t_p[2][8][4];
  nt_u32 t_p_bf16[2][4][4];
  float t_y[2][16][4];
  const int s_r0_qt = o0_h * 524288 + o1_q * 128 + tid / 16 * 128 + tid % 16 * 8;
  {
    const nt_u16* from = g_0_Q + s_r0_qt;
    #pragma unroll
    for (int i = 0; i < 16; i++) {
      const int r = tid / 16 + i * 8, c = tid % 16;
      nt_copy16(shared + r * 256 + (c ^ (r & 7)) * 16, from + i * 8 * 128);
    }
  }
  // clear mu to -inf
  #pragma unroll
  for (int i = 0; i < 2; i++)
    #pragma unroll
    for (int h = 0; h < 2; h++)
      t_mu[i][h] = -nt_inf();
  // clear l to 0.0
  #pragma unroll
  for (int i = 0; i < 2; i++)
    #pragma unroll
    for (int h = 0; h < 2; h++)
      t_l[i][h] = 0.0f;
  // clear o to 0.0
  #pragma unroll
  for (int i = 0; i < 2; i++)
    #pragma unroll
    for (int h = 0; h < 2; h++)
      #pragma unroll
      for (int j = 0; j < 16; j++)
        #pragma unroll
        for (int q = 0; q < 2; q++)
          t_o[i][j][2 * h + q] = 0.0f;
  {  // blocks of t
    const int first0 = 0;
    int stop0 = ((o1_q + 191) / 64);
    stop0 = stop0 > 64 ? 64 : stop0 > first0 ? stop0 : first0 + 1;
    const int s_r1_kt = (o0_h / 4) * 524288 + tid / 16 * 128 + tid % 16 * 8;
    const int s_r1_vt = (o0_h / 4) * 524288 + tid / 16 * 128 + tid % 16 * 8;
    if (first0 < stop0) {
      const int next = first0;
      const int n2_t = next * 64;
      {
        const nt_u16* from = g_1_K + (s_r1_kt + n2_t * 128);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
          const int r = tid / 16 + i * 8, c = tid % 16;
          nt_copy16((shared + 32768 + (next & 1) * 32768) + r * 256 + (c ^ (r & 7)) * 16, from + i * 8 * 128);
        }
      }
      {
        const nt_u16* from = g_2_V + (s_r1_vt + n2_t * 128);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
          const int r = tid / 16 + i * 8, c = tid % 16;
          nt_copy16((shared + 32768 + (next & 1) * 32768) + 16384 + r * 256 + (c ^ (r & 7)) * 16, from + i * 8 * 128);
        }
      }
    }
    nt_copy_commit();
    #pragma unroll 1
    for (int step0 = first0; step0 < stop0; step0++) {
      const int o2_t = step0 * 64;
      const nt_u32 in_r1 = shared + 32768 + (step0 & 1) * 32768;
      const bool whole = step0 >= 0 && step0 < ((o1_q + 1) / 64);
      nt_copy_wait<0>();
      __syncthreads();
      if (step0 + 1 < stop0) {
        const int next = step0 + 1;
        const int n2_t = next * 64;
        {
          const nt_u16* from = g_1_K + (s_r1_kt + n2_t * 128);
          #pragma unroll
          for (int i = 0; i < 8; i++) {
            const int r = tid / 16 + i * 8, c = tid % 16;
            nt_copy16((shared + 32768 + (next & 1) * 32768) + r * 256 + (c ^ (r & 7)) * 16, from + i * 8 * 128);
          }
        }
        {
          const nt_u16* from = g_2_V + (s_r1_vt + n2_t * 128);
          #pragma unroll
          for (int i = 0; i < 8; i++) {
            const int r = tid / 16 + i * 8, c = tid % 16;
            nt_copy16((shared + 32768 + (next & 1) * 32768) + 16384 + r * 256 + (c ^ (r & 7)) * 16, from + i * 8 * 128);
          }
        }
      }
      nt_copy_commit();
      // clear s to 0.0
      #pragma unroll
      for (int i = 0; i < 2; i++)
        #pragma unroll
        for (int h = 0; h < 2; h++)
          #pragma unroll
          for (int j = 0; j < 8; j++)
            #pragma unroll
            for (int q = 0; q < 2; q++)
              t_s[i][j][2 * h + q] = 0.0f;
      // multiply bf16: s += qt x kt over 128 of d
      {
        const int ar = warp_row * 32 + (lane & 7) + ((lane >> 3) & 1) * 8;
        const nt_u32 a = shared + ar * 256;
        const nt_u32 ax = ((lane >> 4) ^ ((ar >> 0) & 7)) << 4;
        const int b0r = (lane & 7) + (lane >> 4) * 8;
        const nt_u32 b0 = in_r1 + b0r * 256;
        const nt_u32 b0x = (((lane >> 3) & 1) ^ ((b0r >> 0) & 7)) << 4;
        nt_u32 fa[2][2][4];
        nt_u32 fb0[2][4][4];
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          nt_fragments(fa[0][i], a + i * 4096 + ax);
        }
        #pragma unroll
        for (int j = 0; j < 4; j++) {
          nt_fragments(fb0[0][j], b0 + j * 4096 + b0x);
        }
        #pragma unroll
        for (int k = 0; k < 8; k++) {
          if (k + 1 < 8) {
            #pragma unroll
            for (int i = 0; i < 2; i++) {
              nt_fragments(fa[((k + 1) & 1)][i], a + i * 4096 + (ax ^ ((k + 1) * 32)));
            }
            #pragma unroll
            for (int j = 0; j < 4; j++) {
              nt_fragments(fb0[((k + 1) & 1)][j], b0 + j * 4096 + (b0x ^ ((k + 1) * 32)));
            }
          }
          #pragma unroll
          for (int j = 0; j < 4; j++) {
            #pragma unroll
            for (int i = 0; i < 2; i++) {
              nt_mma_bf16(t_s[i][2 * j], fa[(k & 1)][i], fb0[(k & 1)][j][0], fb0[(k & 1)][j][1]);
              nt_mma_bf16(t_s[i][2 * j + 1], fa[(k & 1)][i], fb0[(k & 1)][j][2], fb0[(k & 1)][j][3]);
            }
          }
        }
      }
      // x = s
      {
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          #pragma unroll
          for (int h = 0; h < 2; h++) {
            #pragma unroll
            for (int j = 0; j < 8; j++) {
              #pragma unroll
              for (int q = 0; q < 2; q++) {
                t_x[i][j][2 * h + q] = t_s[i][j][2 * h + q];
              }
            }
          }
        }
      }
      // m = where((t <= q), x, -inf), plain in whole blocks
      if (whole) {
        {
          #pragma unroll
          for (int i = 0; i < 2; i++) {
            #pragma unroll
            for (int h = 0; h < 2; h++) {
              #pragma unroll
              for (int j = 0; j < 8; j++) {
                #pragma unroll
                for (int q = 0; q < 2; q++) {
                  t_m[i][j][2 * h + q] = t_x[i][j][2 * h + q];
                }
              }
            }
          }
        }
      } else {
        {
          const float u0 = -nt_inf();
          #pragma unroll
          for (int i = 0; i < 2; i++) {
            #pragma unroll
            for (int h = 0; h < 2; h++) {
              const int p_row = row0 + i * 16 + h * 8;
              #pragma unroll
              for (int j = 0; j < 8; j++) {
                #pragma unroll
                for (int q = 0; q < 2; q++) {
                  const int p_col = o2_t + lane_column + j * 8 + q;
                  t_m[i][j][2 * h + q] = ((p_col <= p_row) ? t_x[i][j][2 * h + q] : u0);
                }
              }
            }
          }
        }
      }
      #pragma unroll
      for (int i = 0; i < 2; i++)
        #pragma unroll
        for (int h = 0; h < 2; h++)
          t_mu_before[i][h] = t_mu[i][h];
      // fold mu <- max of m, carried settled
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        #pragma unroll
        for (int h = 0; h < 2; h++) {
          float v = t_m[i][0][2 * h];
          v = nt_max(v, t_m[i][0][2 * h + 1]);
          #pragma unroll
          for (int j = 1; j < 8; j++) {
            v = nt_max(v, t_m[i][j][2 * h]);
            v = nt_max(v, t_m[i][j][2 * h + 1]);
          }
          v = nt_max(v, nt_shuffle_xor(v, 1));
          v = nt_max(v, nt_shuffle_xor(v, 2));
          t_mu[i][h] = nt_max(t_mu[i][h], v);
        }
      }
      // r = exp(((mu_before * 0.08838835) - (mu * 0.08838835)))
      {
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          #pragma unroll
          for (int h = 0; h < 2; h++) {
            t_r[i][h] = (nt_ex2(((t_mu_before[i][h] * 0.12751743f) - (t_mu[i][h] * 0.12751743f))));
          }
        }
      }
      // p = exp(((m * 0.08838835) - (mu * 0.08838835)))
      {
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          #pragma unroll
          for (int h = 0; h < 2; h++) {
            const float r0 = t_mu[i][h] * 0.12751743f;
            #pragma unroll
            for (int j = 0; j < 8; j++) {
              #pragma unroll
              for (int q = 0; q < 2; q++) {
                t_p[i][j][2 * h + q] = (nt_ex2(((t_m[i][j][2 * h + q] * 0.12751743f) - r0)));
              }
            }
          }
        }
      }
      // fold l <- sum of p, carried per thread
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        #pragma unroll
        for (int h = 0; h < 2; h++) {
          float v = nt_repair(t_l[i][h], t_r[i][h]) + t_p[i][0][2 * h];
          v = v + t_p[i][0][2 * h + 1];
          #pragma unroll
          for (int j = 1; j < 8; j++) {
            v = v + t_p[i][j][2 * h];
            v = v + t_p[i][j][2 * h + 1];
          }
          t_l[i][h] = v;
        }
      }
      // rescale o by r
      {
        bool moved = false;
        #pragma unroll
        for (int i = 0; i < 2; i++)
          #pragma unroll
          for (int h = 0; h < 2; h++)
            moved |= !(t_r[i][h] == 1.0f);
        if (nt_any(moved)) {
          #pragma unroll
          for (int i = 0; i < 2; i++)
            #pragma unroll
            for (int h = 0; h < 2; h++)
              #pragma unroll
              for (int j = 0; j < 16; j++)
                #pragma unroll
                for (int q = 0; q < 2; q++)
                  t_o[i][j][2 * h + q] = nt_repair(t_o[i][j][2 * h + q], t_r[i][h]);
        }
      }
      // pack p_bf16 <- p as bf16
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        #pragma unroll
        for (int k = 0; k < 4; k++) {
          t_p_bf16[i][k][0] = nt_bf16x2_of_f32(t_p[i][2 * k][0], t_p[i][2 * k][1]);
          t_p_bf16[i][k][1] = nt_bf16x2_of_f32(t_p[i][2 * k][2], t_p[i][2 * k][3]);
          t_p_bf16[i][k][2] = nt_bf16x2_of_f32(t_p[i][2 * k + 1][0], t_p[i][2 * k + 1][1]);
          t_p_bf16[i][k][3] = nt_bf16x2_of_f32(t_p[i][2 * k + 1][2], t_p[i][2 * k + 1][3]);
        }
      }
      // multiply bf16: o += p_bf16 x vt over 64 of t
      {
        const int b0r = (lane & 7) + ((lane >> 3) & 1) * 8;
        const nt_u32 b0 = in_r1 + 16384 + b0r * 256;
        const nt_u32 b0x = (((lane >> 4)) ^ ((b0r >> 0) & 7)) << 4;
        nt_u32 fb0[2][8][4];
        #pragma unroll
        for (int j = 0; j < 8; j++) {
          nt_fragments_transposed(fb0[0][j], b0 + (b0x ^ (j * 32)));
        }
        #pragma unroll
        for (int k = 0; k < 4; k++) {
          if (k + 1 < 4) {
            #pragma unroll
            for (int j = 0; j < 8; j++) {
              nt_fragments_transposed(fb0[((k + 1) & 1)][j], b0 + (k + 1) * 4096 + (b0x ^ (j * 32)));
            }
          }
          #pragma unroll
          for (int j = 0; j < 8; j++) {
            #pragma unroll
            for (int i = 0; i < 2; i++) {
              nt_mma_bf16(t_o[i][2 * j], t_p_bf16[i][k], fb0[(k & 1)][j][0], fb0[(k & 1)][j][1]);
              nt_mma_bf16(t_o[i][2 * j + 1], t_p_bf16[i][k], fb0[(k & 1)][j][2], fb0[(k & 1)][j][3]);
            }
          }
        }
      }
    }
  }
  // settle l by sum
  #pragma unroll
  for (int i = 0; i < 2; i++)
    #pragma unroll
    for (int h = 0; h < 2; h++)
      { t_l[i][h] = t_l[i][h] + nt_shuffle_xor(t_l[i][h], 1); t_l[i][h] = t_l[i][h] + nt_shuffle_xor(t_l[i][h], 2); }
  // y = (o * (1 / l))
  {
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      #pragma unroll
      for (int h = 0; h < 2; h++) {
        const float r1 = nt_div(1.0f, t_l[i][h]);
        #pragma unroll
        for (int j = 0; j < 16; j++) {
          #pragma unroll
          for (int q = 0; q < 2; q++) {
            t_y[i][j][2 * h + q] = (t_o[i][j][2 * h + q] * r1);
          }
        }
      }
    }
  }
  nt_copy_wait<0>();
  __syncthreads();
  // store O <- y, staged
  {
    const nt_u32 staging = shared + warp * 4352;
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      #pragma unroll
      for (int h = 0; h < 2; h++)
        #pragma unroll
        for (int j = 0; j < 16; j++)
          nt_store4(staging + (h * 8 + (lane >> 2)) * 272 + (j * 8 + lane_column) * 2, nt_bf16x2_of_f32(t_y[i][j][2 * h], t_y[i][j][2 * h + 1]));
      nt_warp_sync();
      #pragma unroll
      for (int n = 0; n < 8; n++) {
        const int r = (lane + n * 32) / 16, c = (lane + n * 32) % 16;
        const int p_row = o1_q + warp_row * 32 + i * 16 + r;
        const int p_col = c * 8;
        nt_export16(g_3_O + (o0_h * 524288 + p_row * 128 + p_col), staging + r * 272 + c * 16);
      }
      nt_warp_sync();
    }
  }
}
