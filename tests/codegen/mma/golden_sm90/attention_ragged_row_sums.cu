// kernel
// memory program attention: 3 consumer warpgroups share a tile of 192 rows of q; 148624 bytes shared
//   registers: producer 32, consumers 160
//   ring Q: 2 x 24576 bytes at 0
//     qt[q, d]: 192 x 64 bf16 at 0, 1 panels of 128 bytes; Q at (d, q, h)
//   ring K: 3 x 8192 bytes at 49152
//     kt[t, d]: 64 x 64 bf16 at 0, 1 panels of 128 bytes; K at (d, t, h)
//   ring V: 3 x 8192 bytes at 73728
//     vt[t, e]: 64 x 64 bf16 at 0, 1 panels of 128 bytes; V at (e, t, h)
//   registers s: 32 x 1 a thread: s, x, p
//   registers o: 32 x 1 a thread: o
//   role producer
//     for each tile, static
//       wait empty Q
//       fill Q
//       advance Q
//       for each block of t from the last down
//         wait empty K
//         fill K
//         advance K
//         wait empty V
//         fill V
//         advance V
//   role consumer
//     pair start
//     for the next tile, if there is one
//       wait full Q
//       wait full K
//       fence
//       issue s (fresh) += qt x kt over 64 of d, 64 columns of bf16, left in shared memory
//       commit group
//     for each tile, static
//       clear mu to -inf
//       clear l to 0.0
//       begin o
//       for the first block of t
//         wait group 0: s
//         release K
//         advance K
//         keep mu_before <- mu
//         mask x past the extent: -inf
//         fold mu <- max of x, carried settled
//         r = exp(((mu_before * 0.125) - (mu * 0.125)))
//         p = exp(((x * 0.125) - (mu * 0.125)))
//         mask p past the extent: 0.0
//         fold l <- sum of p, carried per thread
//         mask p past the extent: 0.0
//         pack p_bf16 <- p as bf16
//       for each other block of t from the last down
//         wait full K
//         pair sync
//         fence
//         issue s (fresh) += qt x kt over 64 of d, 64 columns of bf16, left in shared memory
//         commit group
//         wait full V
//         issue o (begun) += p_bf16 x vt over 64 of t, 64 columns of bf16, left in registers
//         commit group
//         pair arrive
//         wait group 1: s
//         release K
//         advance K
//         keep mu_before <- mu
//         fold mu <- max of x, carried settled
//         r = exp(((mu_before * 0.125) - (mu * 0.125)))
//         p = exp(((x * 0.125) - (mu * 0.125)))
//         fold l <- sum of p, carried per thread
//         pin l
//         wait group 0: o, s, p_bf16
//         release V
//         advance V
//         rescale o by r
//         pack p_bf16 <- p as bf16
//       release Q
//       advance Q
//       wait full V
//       fence
//       issue o (begun) += p_bf16 x vt over 64 of t, 64 columns of bf16, left in registers
//       commit group
//       for the next tile, if there is one
//         wait full Q
//         wait full K
//         fence
//         issue s (fresh) += qt x kt over 64 of d, 64 columns of bf16, left in shared memory
//         commit group
//       settle l by sum
//       wait group 1: o, p_bf16
//       release V
//       advance V
//       store tile O <- (o * (1 / l))
//       lse = ((mu * 0.125) + log(l))
//       store L <- lse
//     wait group 0: s
extern "C" __global__ void __launch_bounds__(512, 1)
k_attention(const __grid_constant__ nt_map map_Q, const __grid_constant__ nt_map map_K, const __grid_constant__ nt_map map_V, const __grid_constant__ nt_map map_O, float* __restrict__ g_0_L) {
  extern __shared__ unsigned char memory[];
  const nt_u32 shared = (nt_shared(memory) + 1023) & ~1023u;
  const nt_u32 in_Q = shared;  // 2 x 24576 bytes: qt
  const nt_u32 full_Q = shared + 147456;
  const nt_u32 empty_Q = shared + 147472;
  const nt_u32 in_K = shared + 49152;  // 3 x 8192 bytes: kt
  const nt_u32 full_K = shared + 147488;
  const nt_u32 empty_K = shared + 147512;
  const nt_u32 in_V = shared + 73728;  // 3 x 8192 bytes: vt
  const nt_u32 full_V = shared + 147536;
  const nt_u32 empty_V = shared + 147560;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int warpgroup = nt_uniform(threadIdx.x >> 7);
  if (threadIdx.x == 0) {
    nt_map_prefetch(&map_Q);
    nt_map_prefetch(&map_K);
    nt_map_prefetch(&map_V);
    nt_map_prefetch(&map_O);
    for (int i = 0; i < 2; i++) {
      nt_barrier_init(full_Q + 8 * i, 1);
      nt_barrier_init(empty_Q + 8 * i, 12);
    }
    for (int i = 0; i < 3; i++) {
      nt_barrier_init(full_K + 8 * i, 1);
      nt_barrier_init(empty_K + 8 * i, 12);
    }
    for (int i = 0; i < 3; i++) {
      nt_barrier_init(full_V + 8 * i, 1);
      nt_barrier_init(empty_V + 8 * i, 12);
    }
    nt_barrier_init_done();
  }
  __syncthreads();
  if (warpgroup == 0) {
    nt_give_registers<32>();
    if (threadIdx.x == 0) {
      int slot_Q = 0; nt_u32 parity_Q = 1;
      int slot_K = 0; nt_u32 parity_K = 1;
      int slot_V = 0; nt_u32 parity_V = 1;
      for (int number = blockIdx.x; number < 48; number += gridDim.x) {
        const int band = number / 48, within = number % 48;
        const int high = 8;
        const int z = band * 8 + within % high, tile_row = within / high;
        const int o1_q = tile_row * 192;
        const int o0_h = z;
        nt_barrier_wait(empty_Q + 8 * slot_Q, parity_Q);
        nt_barrier_expect(full_Q + 8 * slot_Q, 24576);
        nt_tma_load_3d(in_Q + slot_Q * 24576, &map_Q, full_Q + 8 * slot_Q, 0, o1_q, o0_h);
        if (++slot_Q == 2) { slot_Q = 0; parity_Q ^= 1; }
        {  // blocks of t
          const int first_t = 0;
          const int stop_t = 16;
          #pragma unroll 1
          for (int block_t = stop_t - 1; block_t >= first_t; block_t--) {
            const int o2_t = block_t * 64;
            nt_barrier_wait(empty_K + 8 * slot_K, parity_K);
            nt_barrier_expect(full_K + 8 * slot_K, 8192);
            nt_tma_load_3d(in_K + slot_K * 8192, &map_K, full_K + 8 * slot_K, 0, o2_t, o0_h);
            if (++slot_K == 3) { slot_K = 0; parity_K ^= 1; }
            nt_barrier_wait(empty_V + 8 * slot_V, parity_V);
            nt_barrier_expect(full_V + 8 * slot_V, 8192);
            nt_tma_load_3d(in_V + slot_V * 8192, &map_V, full_V + 8 * slot_V, 0, o2_t, o0_h);
            if (++slot_V == 3) { slot_V = 0; parity_V ^= 1; }
          }
        }
      }
    }
  } else {
    nt_take_registers<160>();
    const int w = warpgroup - 1;
    const int lane_column = (lane & 3) * 2;
    float t_s[32];  // x, p
    float t_o[32];
    nt_u32 t_p_bf16[16];
    float t_mu[2];
    float t_mu_before[2];
    float t_r[2];
    float t_l[2];
    float t_lse[2];
    int slot_Q = 0; nt_u32 parity_Q = 0;
    int slot_K = 0; nt_u32 parity_K = 0;
    int slot_V = 0; nt_u32 parity_V = 0;
    if (w == 2) nt_named_arrive(4, 256);
    int number = blockIdx.x;
    if (number < 48) {
      nt_barrier_wait(full_Q + 8 * slot_Q, parity_Q);
      nt_barrier_wait(full_K + 8 * slot_K, parity_K);
    }
    nt_wgmma_fence();
    {
      const nt_u64 left = nt_descriptor<128>(in_Q + slot_Q * 24576 + w * 8192);
      const nt_u64 right = nt_descriptor<128>(in_K + slot_K * 8192);
      #pragma unroll
      for (int k = 0; k < 4; k++) {
        nt_wgmma_ss_n64_bf16(t_s, left + k * 2, right + k * 2, k != 0);
      }
    }
    nt_wgmma_commit();
    while (number < 48) {
      const int next = number + gridDim.x;
      const int band = number / 48, within = number % 48;
      const int high = 8;
      const int z = band * 8 + within % high, tile_row = within / high;
      const int o1_q = tile_row * 192;
      const int o0_h = z;
      const int row0 = o1_q + w * 64 + (warp & 3) * 16 + (lane >> 2);
      #pragma unroll
      for (int e = 0; e < 2; e++) {
        t_mu[e] = -nt_inf();
      }
      #pragma unroll
      for (int e = 0; e < 2; e++) {
        t_l[e] = 0.0f;
      }
      int keep_o = 0;
      {  // blocks of t
        const int first_t = 0;
        const int stop_t = 16;
        {
          const int block_t = stop_t - 1;
          const int o2_t = block_t * 64;
          nt_wgmma_wait0_f32(t_s);
          if (lane == 0) nt_barrier_arrive(empty_K + 8 * slot_K);
          if (++slot_K == 3) { slot_K = 0; parity_K ^= 1; }
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            t_mu_before[e] = t_mu[e];
          }
          if (o2_t + 64 > 1000) {  // the ragged block
            {
              #pragma unroll
              for (int j = 0; j < 8; j++) {
                #pragma unroll
                for (int e = 0; e < 2; e++) {
                  #pragma unroll
                  for (int q = 0; q < 2; q++) {
                    const int p_col = o2_t + lane_column + j * 8 + q;
                    if (p_col >= 1000) t_s[4 * j + 2 * e + q] = -nt_inf();
                  }
                }
              }
            }
          }
          // mu = max of x
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            float v = nt_max(t_s[2 * e], t_s[2 * e + 1]);
            float u = nt_max(t_s[4 + 2 * e], t_s[4 + 2 * e + 1]);
            #pragma unroll
            for (int j = 2; j < 8; j += 2) {
              v = nt_max(v, nt_max(t_s[4 * j + 2 * e], t_s[4 * j + 2 * e + 1]));
              u = nt_max(u, nt_max(t_s[4 * j + 4 + 2 * e], t_s[4 * j + 4 + 2 * e + 1]));
            }
            v = nt_max(v, u);
            v = nt_max(v, nt_shuffle_xor(v, 1));
            v = nt_max(v, nt_shuffle_xor(v, 2));
            t_mu[e] = nt_max(t_mu[e], v);
          }
          // r = exp(((mu_before * 0.125) - (mu * 0.125)))
          {
            #pragma unroll
            for (int e = 0; e < 2; e++) {
              t_r[e] = nt_ex2(((t_mu_before[e] * 0.18033688f) - (t_mu[e] * 0.18033688f)));
            }
          }
          // p = exp(((x * 0.125) - (mu * 0.125)))
          {
            float r0[2];
            #pragma unroll
            for (int e = 0; e < 2; e++) {
              r0[e] = t_mu[e] * 0.18033688f;
            }
            #pragma unroll
            for (int j = 0; j < 8; j++) {
              #pragma unroll
              for (int e = 0; e < 2; e++) {
                #pragma unroll
                for (int q = 0; q < 2; q++) {
                  t_s[4 * j + 2 * e + q] = nt_ex2(((t_s[4 * j + 2 * e + q] * 0.18033688f) - r0[e]));
                }
              }
            }
          }
          if (o2_t + 64 > 1000) {  // the ragged block
            {
              #pragma unroll
              for (int j = 0; j < 8; j++) {
                #pragma unroll
                for (int e = 0; e < 2; e++) {
                  #pragma unroll
                  for (int q = 0; q < 2; q++) {
                    const int p_col = o2_t + lane_column + j * 8 + q;
                    if (p_col >= 1000) t_s[4 * j + 2 * e + q] = 0.0f;
                  }
                }
              }
            }
          }
          // l = sum of p
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            float v = (t_s[2 * e] + t_s[2 * e + 1]);
            #pragma unroll
            for (int j = 1; j < 8; j++) {
              v = v + (t_s[4 * j + 2 * e] + t_s[4 * j + 2 * e + 1]);
            }
            t_l[e] = nt_repair(t_l[e], t_r[e]) + v;
          }
          if (o2_t + 64 > 1000) {  // the ragged block
            {
              #pragma unroll
              for (int j = 0; j < 8; j++) {
                #pragma unroll
                for (int e = 0; e < 2; e++) {
                  #pragma unroll
                  for (int q = 0; q < 2; q++) {
                    const int p_col = o2_t + lane_column + j * 8 + q;
                    if (p_col >= 1000) t_s[4 * j + 2 * e + q] = 0.0f;
                  }
                }
              }
            }
          }
          // p as an operand of bf16
          #pragma unroll
          for (int i = 0; i < 16; i++) {
            t_p_bf16[i] = nt_bf16x2_of_f32(t_s[2 * i], t_s[2 * i + 1]);
          }
        }
        #pragma unroll 1
        for (int block_t = stop_t - 2; block_t >= first_t; block_t--) {
          const int o2_t = block_t * 64;
          nt_barrier_wait(full_K + 8 * slot_K, parity_K);
          nt_named_sync(4 + w, 256);
          nt_wgmma_fence();
          {
            const nt_u64 left = nt_descriptor<128>(in_Q + slot_Q * 24576 + w * 8192);
            const nt_u64 right = nt_descriptor<128>(in_K + slot_K * 8192);
            #pragma unroll
            for (int k = 0; k < 4; k++) {
              nt_wgmma_ss_n64_bf16(t_s, left + k * 2, right + k * 2, k != 0);
            }
          }
          nt_wgmma_commit();
          nt_barrier_wait(full_V + 8 * slot_V, parity_V);
          {
            const nt_u64 right = nt_descriptor<128>(in_V + slot_V * 8192);
            #pragma unroll
            for (int k = 0; k < 4; k++) {
              nt_wgmma_rs_n64_bf16_n(t_o, t_p_bf16[4 * k], t_p_bf16[4 * k + 1], t_p_bf16[4 * k + 2], t_p_bf16[4 * k + 3], right + k * 128, (k != 0) | keep_o);
            }
          }
          keep_o = 1;
          nt_wgmma_commit();
          nt_named_arrive(4 + (w == 2 ? 0 : w + 1), 256);
          nt_wgmma_wait1_f32(t_s);
          if (lane == 0) nt_barrier_arrive(empty_K + 8 * slot_K);
          if (++slot_K == 3) { slot_K = 0; parity_K ^= 1; }
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            t_mu_before[e] = t_mu[e];
          }
          // mu = max of x
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            float v = nt_max(t_s[2 * e], t_s[2 * e + 1]);
            float u = nt_max(t_s[4 + 2 * e], t_s[4 + 2 * e + 1]);
            #pragma unroll
            for (int j = 2; j < 8; j += 2) {
              v = nt_max(v, nt_max(t_s[4 * j + 2 * e], t_s[4 * j + 2 * e + 1]));
              u = nt_max(u, nt_max(t_s[4 * j + 4 + 2 * e], t_s[4 * j + 4 + 2 * e + 1]));
            }
            v = nt_max(v, u);
            v = nt_max(v, nt_shuffle_xor(v, 1));
            v = nt_max(v, nt_shuffle_xor(v, 2));
            t_mu[e] = nt_max(t_mu[e], v);
          }
          // r = exp(((mu_before * 0.125) - (mu * 0.125)))
          {
            #pragma unroll
            for (int e = 0; e < 2; e++) {
              t_r[e] = nt_ex2(((t_mu_before[e] * 0.18033688f) - (t_mu[e] * 0.18033688f)));
            }
          }
          // p = exp(((x * 0.125) - (mu * 0.125)))
          {
            float r1[2];
            #pragma unroll
            for (int e = 0; e < 2; e++) {
              r1[e] = t_mu[e] * 0.18033688f;
            }
            #pragma unroll
            for (int j = 0; j < 8; j++) {
              #pragma unroll
              for (int e = 0; e < 2; e++) {
                #pragma unroll
                for (int q = 0; q < 2; q++) {
                  t_s[4 * j + 2 * e + q] = nt_ex2(((t_s[4 * j + 2 * e + q] * 0.18033688f) - r1[e]));
                }
              }
            }
          }
          // l = sum of p
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            float v = (t_s[2 * e] + t_s[2 * e + 1]);
            #pragma unroll
            for (int j = 1; j < 8; j++) {
              v = v + (t_s[4 * j + 2 * e] + t_s[4 * j + 2 * e + 1]);
            }
            t_l[e] = nt_repair(t_l[e], t_r[e]) + v;
          }
          nt_pin(shared + 147588, t_l[0] + t_l[1]);
          nt_wgmma_wait0_f32_f32_r16(t_o, t_s, t_p_bf16);
          if (lane == 0) nt_barrier_arrive(empty_V + 8 * slot_V);
          if (++slot_V == 3) { slot_V = 0; parity_V ^= 1; }
          // o to the new reference, by r
          {
            bool moved = false, dropped = false;
            #pragma unroll
            for (int e = 0; e < 2; e++) {
              moved |= !(t_r[e] == 1.0f);
              dropped |= t_r[e] == 0.0f;
            }
            if (nt_any(dropped)) {
              #pragma unroll
              for (int j = 0; j < 8; j++) {
                #pragma unroll
                for (int e = 0; e < 2; e++) {
                  #pragma unroll
                  for (int q = 0; q < 2; q++) t_o[4 * j + 2 * e + q] = nt_repair(t_o[4 * j + 2 * e + q], t_r[e]);
                }
              }
            } else if (nt_any(moved)) {
              #pragma unroll
              for (int j = 0; j < 8; j++) {
                #pragma unroll
                for (int e = 0; e < 2; e++) {
                  #pragma unroll
                  for (int q = 0; q < 2; q++) t_o[4 * j + 2 * e + q] *= t_r[e];
                }
              }
            }
          }
          // p as an operand of bf16
          #pragma unroll
          for (int i = 0; i < 16; i++) {
            t_p_bf16[i] = nt_bf16x2_of_f32(t_s[2 * i], t_s[2 * i + 1]);
          }
        }
      }
      if (lane == 0) nt_barrier_arrive(empty_Q + 8 * slot_Q);
      if (++slot_Q == 2) { slot_Q = 0; parity_Q ^= 1; }
      nt_barrier_wait(full_V + 8 * slot_V, parity_V);
      nt_wgmma_fence();
      {
        const nt_u64 right = nt_descriptor<128>(in_V + slot_V * 8192);
        #pragma unroll
        for (int k = 0; k < 4; k++) {
          nt_wgmma_rs_n64_bf16_n(t_o, t_p_bf16[4 * k], t_p_bf16[4 * k + 1], t_p_bf16[4 * k + 2], t_p_bf16[4 * k + 3], right + k * 128, (k != 0) | keep_o);
        }
      }
      keep_o = 1;
      nt_wgmma_commit();
      if (next < 48) {
        nt_barrier_wait(full_Q + 8 * slot_Q, parity_Q);
        nt_barrier_wait(full_K + 8 * slot_K, parity_K);
      }
      nt_wgmma_fence();
      {
        const nt_u64 left = nt_descriptor<128>(in_Q + slot_Q * 24576 + w * 8192);
        const nt_u64 right = nt_descriptor<128>(in_K + slot_K * 8192);
        #pragma unroll
        for (int k = 0; k < 4; k++) {
          nt_wgmma_ss_n64_bf16(t_s, left + k * 2, right + k * 2, k != 0);
        }
      }
      nt_wgmma_commit();
      #pragma unroll
      for (int e = 0; e < 2; e++) {
        t_l[e] = t_l[e] + nt_shuffle_xor(t_l[e], 1);
        t_l[e] = t_l[e] + nt_shuffle_xor(t_l[e], 2);
      }
      nt_wgmma_wait1_f32_r16(t_o, t_p_bf16);
      if (lane == 0) nt_barrier_arrive(empty_V + 8 * slot_V);
      if (++slot_V == 3) { slot_V = 0; parity_V ^= 1; }
      // O = (o * (1 / l))
      {
        float r2[2];
        #pragma unroll
        for (int e = 0; e < 2; e++) {
          r2[e] = 1.0f / t_l[e];
        }
        const nt_u32 staging = shared + 98304 + w * 16384;
        const nt_u32 put_row = (warp & 3) * 16 + (lane >> 2);
        #pragma unroll
        for (int panel = 0; panel < 2; panel++) {
          const nt_u32 to = staging + (panel & 1) * 8192;
          if (panel == 0) {
            if ((threadIdx.x & 127) == 0) {
              nt_bulk_wait_read<0>();
            }
            nt_named_sync(1 + w, 128);
          }
          #pragma unroll
          for (int part = 0; part < 4; part++) {
            float v[4];
            #pragma unroll
            for (int half = 0; half < 1; half++) {
              const int j = panel * 4 + part + half;
              #pragma unroll
              for (int e = 0; e < 2; e++) {
                #pragma unroll
                for (int q = 0; q < 2; q++) {
                  v[4 * half + 2 * e + q] = t_o[4 * j + 2 * e + q] * r2[e];
                }
              }
            }
            nt_store8(to + put_row * 128 + (((part * 2 + ((lane & 3) >> 1)) ^ (put_row & 7)) << 4) + (lane & 1) * 8, __float_as_uint(v[0]), __float_as_uint(v[1]));
            nt_store8(to + put_row * 128 + (((part * 2 + ((lane & 3) >> 1)) ^ (put_row & 7)) << 4) + (lane & 1) * 8 + 1024, __float_as_uint(v[2]), __float_as_uint(v[3]));
          }
          nt_async_fence();
          nt_named_sync(1 + w, 128);
          if ((threadIdx.x & 127) == 0) {
            nt_tma_store_3d(&map_O, to, panel * 32, o1_q + w * 64, o0_h);
            nt_bulk_commit();
          }
        }
      }
      // lse = ((mu * 0.125) + log(l))
      {
        #pragma unroll
        for (int e = 0; e < 2; e++) {
          t_lse[e] = (t_mu[e] * 0.125f) + (logf(t_l[e]));
        }
      }
      {
        const int u0 = o0_h * 1000;
        #pragma unroll
        for (int e = 0; e < 2; e++) {
          const int p_row = row0 + e * 8;
          if ((lane & 3) == 0 && p_row < 1000) g_0_L[(p_row + u0)] = t_lse[e];
        }
      }
      number = next;
    }
    nt_wgmma_wait0_f32(t_s);
    if ((threadIdx.x & 127) == 0) nt_bulk_wait<0>();
  }
}
