// kernel
// memory program attention: 2 consumer warpgroups share a tile of 128 rows of q; 230512 bytes shared
//   registers: producer 40, consumers 232
//   ring Q: 2 x 32768 bytes at 0
//     qt[q, d]: 128 x 128 bf16 at 0, 2 panels of 128 bytes; Q at (d, q, h)
//   ring K: 2 x 32768 bytes at 65536
//     kt[t, d]: 128 x 128 bf16 at 0, 2 panels of 128 bytes; K at (d, t, (h // 4))
//   ring V: 2 x 32768 bytes at 131072
//     vt[t, e]: 128 x 128 bf16 at 0, 2 panels of 128 bytes; V at (e, t, (h // 4))
//   registers s: 64 x 1 a thread: s, x, m, p
//   registers o: 64 x 1 a thread: o
//   role producer
//     for each tile, dynamic
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
//       issue s (fresh) += qt x kt over 128 of d, 128 columns of bf16, left in shared memory
//       commit group
//     for each tile, dynamic
//       clear mu to -inf
//       clear l to 0.0
//       begin o
//       for the first block of t
//         wait group 0: s
//         release K
//         advance K
//         mask m where not (t <= q): -inf
//         keep mu_before <- mu
//         fold mu <- max of m, carried settled
//         r = exp(((mu_before * 0.08838835) - (mu * 0.08838835)))
//         p = exp(((m * 0.08838835) - (mu * 0.08838835)))
//         fold l <- sum of p, carried per thread
//         pack p_bf16 <- p as bf16
//       for each other block of t from the last down
//         wait full K
//         pair sync
//         fence
//         issue s (fresh) += qt x kt over 128 of d, 128 columns of bf16, left in shared memory
//         commit group
//         wait full V
//         issue o (begun) += p_bf16 x vt over 128 of t, 128 columns of bf16, left in registers
//         commit group
//         pair arrive
//         wait group 1: s
//         release K
//         advance K
//         keep mu_before <- mu
//         fold mu <- max of m, carried settled
//         r = exp(((mu_before * 0.08838835) - (mu * 0.08838835)))
//         p = exp(((m * 0.08838835) - (mu * 0.08838835))), and l_part, its sum: 64 columns
//           pin l_part
//           wait group 0: o, s, p_bf16
//           release V
//           advance V
//           rescale o by r
//         the other columns of p
//         fold l <- sum of p, carried per thread
//         pack p_bf16 <- p as bf16
//       release Q
//       advance Q
//       wait full V
//       fence
//       issue o (begun) += p_bf16 x vt over 128 of t, 128 columns of bf16, left in registers
//       commit group
//       for the next tile, if there is one
//         wait full Q
//         wait full K
//         fence
//         issue s (fresh) += qt x kt over 128 of d, 128 columns of bf16, left in shared memory
//         commit group
//       settle l by sum
//       wait group 1: o, p_bf16
//       release V
//       advance V
//       store tile O <- (o * (1 / l))
//     wait group 0: s
extern "C" __global__ void __launch_bounds__(384, 1)
k_attention(const __grid_constant__ nt_map map_Q, const __grid_constant__ nt_map map_K, const __grid_constant__ nt_map map_V, const __grid_constant__ nt_map map_O, int* __restrict__ counter) {
  extern __shared__ unsigned char memory[];
  const nt_u32 shared = (nt_shared(memory) + 1023) & ~1023u;
  const nt_u32 in_Q = shared;  // 2 x 32768 bytes: qt
  const nt_u32 full_Q = shared + 229376;
  const nt_u32 empty_Q = shared + 229392;
  const nt_u32 in_K = shared + 65536;  // 2 x 32768 bytes: kt
  const nt_u32 full_K = shared + 229408;
  const nt_u32 empty_K = shared + 229424;
  const nt_u32 in_V = shared + 131072;  // 2 x 32768 bytes: vt
  const nt_u32 full_V = shared + 229440;
  const nt_u32 empty_V = shared + 229456;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int warpgroup = nt_uniform(threadIdx.x >> 7);
  if (threadIdx.x == 0) {
    nt_map_prefetch(&map_Q);
    nt_map_prefetch(&map_K);
    nt_map_prefetch(&map_V);
    nt_map_prefetch(&map_O);
    for (int i = 0; i < 2; i++) {
      nt_barrier_init(full_Q + 8 * i, 1);
      nt_barrier_init(empty_Q + 8 * i, 8);
    }
    for (int i = 0; i < 2; i++) {
      nt_barrier_init(full_K + 8 * i, 1);
      nt_barrier_init(empty_K + 8 * i, 8);
    }
    for (int i = 0; i < 2; i++) {
      nt_barrier_init(full_V + 8 * i, 1);
      nt_barrier_init(empty_V + 8 * i, 8);
    }
    nt_barrier_init_done();
  }
  __syncthreads();
  if (warpgroup == 0) {
    nt_give_registers<40>();
    if (threadIdx.x == 0) {
      int slot_Q = 0; nt_u32 parity_Q = 1;
      int slot_K = 0; nt_u32 parity_K = 1;
      int slot_V = 0; nt_u32 parity_V = 1;
      while (true) {
        nt_barrier_wait(empty_Q + 8 * slot_Q, parity_Q);
        const int number = atomicAdd(counter, 1);
        if (number == 1023 + (int)gridDim.x) *counter = 0;  // the launch's last draw
        nt_store4(shared + 229472 + 8 * slot_Q, number);
        if (number >= 1024) {
          nt_barrier_arrive(full_Q + 8 * slot_Q);
          break;
        }
        const int band = number / 128, within = number % 128;
        const int high = 4;
        const int z = band * 4 + within % high, tile_row = within / high;
        const int o1_q = (31 - tile_row) * 128;
        const int o0_h = z;
        nt_barrier_expect(full_Q + 8 * slot_Q, 32768);
        nt_tma_load_3d(in_Q + slot_Q * 32768, &map_Q, full_Q + 8 * slot_Q, 0, o1_q, o0_h);
        nt_tma_load_3d(in_Q + slot_Q * 32768 + 16384, &map_Q, full_Q + 8 * slot_Q, 64, o1_q, o0_h);
        if (++slot_Q == 2) { slot_Q = 0; parity_Q ^= 1; }
        {  // blocks of t
          const int first_t = 0;
          int stop_t = ((o1_q + 255) / 128);
          stop_t = stop_t > 32 ? 32 : stop_t > first_t ? stop_t : first_t + 1;
          #pragma unroll 1
          for (int block_t = stop_t - 1; block_t >= first_t; block_t--) {
            const int o2_t = block_t * 128;
            nt_barrier_wait(empty_K + 8 * slot_K, parity_K);
            nt_barrier_expect(full_K + 8 * slot_K, 32768);
            nt_tma_load_3d(in_K + slot_K * 32768, &map_K, full_K + 8 * slot_K, 0, o2_t, o0_h / 4);
            nt_tma_load_3d(in_K + slot_K * 32768 + 16384, &map_K, full_K + 8 * slot_K, 64, o2_t, o0_h / 4);
            if (++slot_K == 2) { slot_K = 0; parity_K ^= 1; }
            nt_barrier_wait(empty_V + 8 * slot_V, parity_V);
            nt_barrier_expect(full_V + 8 * slot_V, 32768);
            nt_tma_load_3d(in_V + slot_V * 32768, &map_V, full_V + 8 * slot_V, 0, o2_t, o0_h / 4);
            nt_tma_load_3d(in_V + slot_V * 32768 + 16384, &map_V, full_V + 8 * slot_V, 64, o2_t, o0_h / 4);
            if (++slot_V == 2) { slot_V = 0; parity_V ^= 1; }
          }
        }
      }
    }
  } else {
    nt_take_registers<232>();
    const int w = warpgroup - 1;
    const int lane_column = (lane & 3) * 2;
    float t_s[64];  // x, m, p
    float t_o[64];
    nt_u32 t_p_bf16[32];
    float t_mu[2];
    float t_mu_before[2];
    float t_r[2];
    float t_l[2];
    float t_l_part[2];
    int slot_Q = 0; nt_u32 parity_Q = 0;
    int slot_K = 0; nt_u32 parity_K = 0;
    int slot_V = 0; nt_u32 parity_V = 0;
    if (w == 1) nt_named_arrive(3, 256);
    int number;
    nt_barrier_wait(full_Q + 8 * slot_Q, parity_Q);
    number = nt_uniform(lane == 0 ? nt_load4(shared + 229472 + 8 * slot_Q) : 0);
    if (number < 1024) {
      nt_barrier_wait(full_K + 8 * slot_K, parity_K);
    }
    nt_wgmma_fence();
    {
      const nt_u64 left = nt_descriptor<128>(in_Q + slot_Q * 32768 + w * 8192);
      const nt_u64 right = nt_descriptor<128>(in_K + slot_K * 32768);
      #pragma unroll
      for (int k = 0; k < 8; k++) {
        nt_wgmma_ss_n128_bf16(t_s, left + ((k >> 2) * 1024 + (k & 3) * 2), right + ((k >> 2) * 1024 + (k & 3) * 2), k != 0);
      }
    }
    nt_wgmma_commit();
    while (number < 1024) {
      int next;
      const int band = number / 128, within = number % 128;
      const int high = 4;
      const int z = band * 4 + within % high, tile_row = within / high;
      const int o1_q = (31 - tile_row) * 128;
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
        int stop_t = ((o1_q + 255) / 128);
        stop_t = stop_t > 32 ? 32 : stop_t > first_t ? stop_t : first_t + 1;
        {
          const int block_t = stop_t - 1;
          const int o2_t = block_t * 128;
          const bool whole = block_t >= 0 && block_t < ((o1_q + 1) / 128);
          nt_wgmma_wait0_f64(t_s);
          if (lane == 0) nt_barrier_arrive(empty_K + 8 * slot_K);
          if (++slot_K == 2) { slot_K = 0; parity_K ^= 1; }
          // m where (t <= q), else -inf
          if (!whole) {  // a block that the mask cuts
            {
              const int d0 = (o2_t + lane_column) - row0;
              #pragma unroll
              for (int j = 0; j < 16; j++) {
                #pragma unroll
                for (int e = 0; e < 2; e++) {
                  #pragma unroll
                  for (int q = 0; q < 2; q++) {
                    if (!((d0 + (-1) * (e * 8) + (j * 8 + q)) <= 0)) t_s[4 * j + 2 * e + q] = -nt_inf();
                  }
                }
              }
            }
          }
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            t_mu_before[e] = t_mu[e];
          }
          // mu = max of m
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            float v = nt_max(t_s[2 * e], t_s[2 * e + 1]);
            #pragma unroll
            for (int j = 1; j < 16; j++) {
              v = nt_max(v, nt_max(t_s[4 * j + 2 * e], t_s[4 * j + 2 * e + 1]));
            }
            v = nt_max(v, nt_shuffle_xor(v, 1));
            v = nt_max(v, nt_shuffle_xor(v, 2));
            t_mu[e] = nt_max(t_mu[e], v);
          }
          // r = exp(((mu_before * 0.08838835) - (mu * 0.08838835)))
          {
            #pragma unroll
            for (int e = 0; e < 2; e++) {
              t_r[e] = nt_ex2(((t_mu_before[e] * 0.12751743f) - (t_mu[e] * 0.12751743f)));
            }
          }
          // p = exp(((m * 0.08838835) - (mu * 0.08838835)))
          {
            float r0[2];
            #pragma unroll
            for (int e = 0; e < 2; e++) {
              r0[e] = t_mu[e] * 0.12751743f;
            }
            #pragma unroll
            for (int j = 0; j < 16; j++) {
              #pragma unroll
              for (int e = 0; e < 2; e++) {
                #pragma unroll
                for (int q = 0; q < 2; q++) {
                  t_s[4 * j + 2 * e + q] = nt_ex2(((t_s[4 * j + 2 * e + q] * 0.12751743f) - r0[e]));
                }
              }
            }
          }
          // l = sum of p
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            float v = (t_s[2 * e] + t_s[2 * e + 1]);
            #pragma unroll
            for (int j = 1; j < 16; j++) {
              v = v + (t_s[4 * j + 2 * e] + t_s[4 * j + 2 * e + 1]);
            }
            t_l[e] = nt_repair(t_l[e], t_r[e]) + v;
          }
          // p as an operand of bf16
          #pragma unroll
          for (int i = 0; i < 32; i++) {
            t_p_bf16[i] = nt_bf16x2_of_f32(t_s[2 * i], t_s[2 * i + 1]);
          }
        }
        #pragma unroll 1
        for (int block_t = stop_t - 2; block_t >= first_t; block_t--) {
          const int o2_t = block_t * 128;
          const bool whole = block_t >= 0 && block_t < ((o1_q + 1) / 128);
          nt_barrier_wait(full_K + 8 * slot_K, parity_K);
          nt_named_sync(3 + w, 256);
          nt_wgmma_fence();
          {
            const nt_u64 left = nt_descriptor<128>(in_Q + slot_Q * 32768 + w * 8192);
            const nt_u64 right = nt_descriptor<128>(in_K + slot_K * 32768);
            #pragma unroll
            for (int k = 0; k < 8; k++) {
              nt_wgmma_ss_n128_bf16(t_s, left + ((k >> 2) * 1024 + (k & 3) * 2), right + ((k >> 2) * 1024 + (k & 3) * 2), k != 0);
            }
          }
          nt_wgmma_commit();
          nt_barrier_wait(full_V + 8 * slot_V, parity_V);
          {
            const nt_u64 right = nt_descriptor<128>(in_V + slot_V * 32768, 16384);
            #pragma unroll
            for (int k = 0; k < 8; k++) {
              nt_wgmma_rs_n128_bf16_n(t_o, t_p_bf16[4 * k], t_p_bf16[4 * k + 1], t_p_bf16[4 * k + 2], t_p_bf16[4 * k + 3], right + k * 128, (k != 0) | keep_o);
            }
          }
          keep_o = 1;
          nt_wgmma_commit();
          nt_named_arrive(3 + (w == 1 ? 0 : w + 1), 256);
          nt_wgmma_wait1_f64(t_s);
          if (lane == 0) nt_barrier_arrive(empty_K + 8 * slot_K);
          if (++slot_K == 2) { slot_K = 0; parity_K ^= 1; }
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            t_mu_before[e] = t_mu[e];
          }
          // mu = max of m
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            float v = nt_max(t_s[2 * e], t_s[2 * e + 1]);
            #pragma unroll
            for (int j = 1; j < 16; j++) {
              v = nt_max(v, nt_max(t_s[4 * j + 2 * e], t_s[4 * j + 2 * e + 1]));
            }
            v = nt_max(v, nt_shuffle_xor(v, 1));
            v = nt_max(v, nt_shuffle_xor(v, 2));
            t_mu[e] = nt_max(t_mu[e], v);
          }
          // r = exp(((mu_before * 0.08838835) - (mu * 0.08838835)))
          {
            #pragma unroll
            for (int e = 0; e < 2; e++) {
              t_r[e] = nt_ex2(((t_mu_before[e] * 0.12751743f) - (t_mu[e] * 0.12751743f)));
            }
          }
          // p = exp(((m * 0.08838835) - (mu * 0.08838835))), the first half
          {
            float r1[2];
            #pragma unroll
            for (int e = 0; e < 2; e++) {
              r1[e] = t_mu[e] * 0.12751743f;
            }
            #pragma unroll
            for (int j = 0; j < 8; j++) {
              #pragma unroll
              for (int e = 0; e < 2; e++) {
                #pragma unroll
                for (int q = 0; q < 2; q++) {
                  t_s[4 * j + 2 * e + q] = nt_ex2(((t_s[4 * j + 2 * e + q] * 0.12751743f) - r1[e]));
                }
              }
            }
          }
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            float v = (t_s[2 * e] + t_s[2 * e + 1]);
            #pragma unroll
            for (int j = 1; j < 8; j++) {
              v = v + (t_s[4 * j + 2 * e] + t_s[4 * j + 2 * e + 1]);
            }
            t_l_part[e] = v;
          }
          nt_pin(shared + 229476, t_l_part[0] + t_l_part[1]);
          nt_wgmma_wait0_f64_f64_r32(t_o, t_s, t_p_bf16);
          if (lane == 0) nt_barrier_arrive(empty_V + 8 * slot_V);
          if (++slot_V == 2) { slot_V = 0; parity_V ^= 1; }
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
              for (int j = 0; j < 16; j++) {
                #pragma unroll
                for (int e = 0; e < 2; e++) {
                  #pragma unroll
                  for (int q = 0; q < 2; q++) t_o[4 * j + 2 * e + q] = nt_repair(t_o[4 * j + 2 * e + q], t_r[e]);
                }
              }
            } else if (nt_any(moved)) {
              #pragma unroll
              for (int j = 0; j < 16; j++) {
                #pragma unroll
                for (int e = 0; e < 2; e++) {
                  #pragma unroll
                  for (int q = 0; q < 2; q++) t_o[4 * j + 2 * e + q] *= t_r[e];
                }
              }
            }
          }
          // the other half, and l = sum of p
          {
            float r2[2];
            #pragma unroll
            for (int e = 0; e < 2; e++) {
              r2[e] = t_mu[e] * 0.12751743f;
            }
            #pragma unroll
            for (int j = 8; j < 16; j++) {
              #pragma unroll
              for (int e = 0; e < 2; e++) {
                #pragma unroll
                for (int q = 0; q < 2; q++) {
                  t_s[4 * j + 2 * e + q] = nt_ex2(((t_s[4 * j + 2 * e + q] * 0.12751743f) - r2[e]));
                }
              }
            }
          }
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            float v = t_l_part[e];
            #pragma unroll
            for (int j = 8; j < 16; j++) {
              v = v + (t_s[4 * j + 2 * e] + t_s[4 * j + 2 * e + 1]);
            }
            t_l[e] = nt_repair(t_l[e], t_r[e]) + v;
          }
          // p as an operand of bf16
          #pragma unroll
          for (int i = 0; i < 32; i++) {
            t_p_bf16[i] = nt_bf16x2_of_f32(t_s[2 * i], t_s[2 * i + 1]);
          }
        }
      }
      if (lane == 0) nt_barrier_arrive(empty_Q + 8 * slot_Q);
      if (++slot_Q == 2) { slot_Q = 0; parity_Q ^= 1; }
      nt_barrier_wait(full_V + 8 * slot_V, parity_V);
      nt_wgmma_fence();
      {
        const nt_u64 right = nt_descriptor<128>(in_V + slot_V * 32768, 16384);
        #pragma unroll
        for (int k = 0; k < 8; k++) {
          nt_wgmma_rs_n128_bf16_n(t_o, t_p_bf16[4 * k], t_p_bf16[4 * k + 1], t_p_bf16[4 * k + 2], t_p_bf16[4 * k + 3], right + k * 128, (k != 0) | keep_o);
        }
      }
      keep_o = 1;
      nt_wgmma_commit();
      nt_barrier_wait(full_Q + 8 * slot_Q, parity_Q);
      next = nt_uniform(lane == 0 ? nt_load4(shared + 229472 + 8 * slot_Q) : 0);
      if (next < 1024) {
        nt_barrier_wait(full_K + 8 * slot_K, parity_K);
      }
      nt_wgmma_fence();
      {
        const nt_u64 left = nt_descriptor<128>(in_Q + slot_Q * 32768 + w * 8192);
        const nt_u64 right = nt_descriptor<128>(in_K + slot_K * 32768);
        #pragma unroll
        for (int k = 0; k < 8; k++) {
          nt_wgmma_ss_n128_bf16(t_s, left + ((k >> 2) * 1024 + (k & 3) * 2), right + ((k >> 2) * 1024 + (k & 3) * 2), k != 0);
        }
      }
      nt_wgmma_commit();
      #pragma unroll
      for (int e = 0; e < 2; e++) {
        t_l[e] = t_l[e] + nt_shuffle_xor(t_l[e], 1);
        t_l[e] = t_l[e] + nt_shuffle_xor(t_l[e], 2);
      }
      nt_wgmma_wait1_f64_r32(t_o, t_p_bf16);
      if (lane == 0) nt_barrier_arrive(empty_V + 8 * slot_V);
      if (++slot_V == 2) { slot_V = 0; parity_V ^= 1; }
      // O = (o * (1 / l))
      {
        float r3[2];
        #pragma unroll
        for (int e = 0; e < 2; e++) {
          r3[e] = nt_div(1.0f, t_l[e]);
        }
        const nt_u32 staging = shared + 196608 + w * 16384;
        const nt_u32 put_row = (warp & 3) * 16 + (lane & 15);
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
            float v[8];
            #pragma unroll
            for (int half = 0; half < 2; half++) {
              const int j = panel * 8 + part * 2 + half;
              #pragma unroll
              for (int e = 0; e < 2; e++) {
                #pragma unroll
                for (int q = 0; q < 2; q++) {
                  v[4 * half + 2 * e + q] = t_o[4 * j + 2 * e + q] * r3[e];
                }
              }
            }
            nt_put_fragments(to + put_row * 128 + (((part * 2 + (lane >> 4)) ^ (put_row & 7)) << 4),
                nt_bf16x2_of_f32(v[0], v[1]),
                nt_bf16x2_of_f32(v[2], v[3]),
                nt_bf16x2_of_f32(v[4], v[5]),
                nt_bf16x2_of_f32(v[6], v[7]));
          }
          nt_async_fence();
          nt_named_sync(1 + w, 128);
          if ((threadIdx.x & 127) == 0) {
            nt_tma_store_3d(&map_O, to, panel * 64, o1_q + w * 64, o0_h);
            nt_bulk_commit();
          }
        }
      }
      number = next;
    }
    nt_wgmma_wait0_f64(t_s);
    if ((threadIdx.x & 127) == 0) nt_bulk_wait<0>();
  }
}
