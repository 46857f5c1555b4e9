// kernel
// memory program gemm: 2 consumer warpgroups take tiles in turn of 128 rows of m; 230496 bytes shared
//   registers: producer 40, consumers 232
//   ring A_B: 5 x 32768 bytes at 0
//     a[m, k]: 128 x 64 bf16 at 0, 1 panels of 128 bytes; A at (k, m)
//     b[n, k]: 128 x 64 bf16 at 16384, 1 panels of 128 bytes; B at (k, n)
//   registers acc: 64 x 2 a thread: acc
//   role producer
//     for each tile, static
//       for each block of k
//         wait empty A_B
//         fill A_B
//         advance A_B
//   role consumer
//     pair start
//     skip A_B, tiles before
//     for each tile, static
//       begin acc
//       pair sync
//       for each block of k
//         wait full A_B
//         fence
//         issue acc (begun) += a x b over 64 of k, 128 columns of bf16, left in shared memory
//         commit group
//         wait group 1: acc
//         release A_B of 1 block before
//         advance A_B
//       pair arrive
//       wait group 0: acc
//       release A_B of 1 block before
//       store tile C <- ((acc + bias[n]) * sigmoid((((acc + bias[n]) + ((((acc + bias[n]) * (acc + bias[n])) * (acc + bias[n])) * 0.044715)) * 1.595769)))
//       skip A_B, tiles between
extern "C" __global__ void __launch_bounds__(384, 1)
k_gemm(const __grid_constant__ nt_map map_A, const __grid_constant__ nt_map map_B, const __grid_constant__ nt_map map_C, const nt_u16* __restrict__ g_0_bias) {
  extern __shared__ unsigned char memory[];
  const nt_u32 shared = (nt_shared(memory) + 1023) & ~1023u;
  const nt_u32 in_A_B = shared;  // 5 x 32768 bytes: a, b
  const nt_u32 full_A_B = shared + 229376;
  const nt_u32 empty_A_B = shared + 229416;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int warpgroup = nt_uniform(threadIdx.x >> 7);
  if (threadIdx.x == 0) {
    nt_map_prefetch(&map_A);
    nt_map_prefetch(&map_B);
    nt_map_prefetch(&map_C);
    for (int i = 0; i < 5; i++) {
      nt_barrier_init(full_A_B + 8 * i, 1);
      nt_barrier_init(empty_A_B + 8 * i, 4);
    }
    nt_barrier_init_done();
  }
  __syncthreads();
  if (warpgroup == 0) {
    nt_give_registers<40>();
    if (threadIdx.x == 0) {
      int slot_A_B = 0; nt_u32 parity_A_B = 1;
      for (int number = blockIdx.x; number < 1024; number += gridDim.x) {
        const int inner = number % 1024;
        const int band = inner / 512, within = inner % 512;
        const int high = 16;
        const int tile_row = band * 16 + within % high, tile_column = within / high;
        const int o0_m = tile_row * 128;
        const int o1_n = tile_column * 128;
        {  // blocks of k
          const int first_k = 0;
          const int stop_k = 64;
          #pragma unroll 1
          for (int block_k = first_k; block_k < stop_k; block_k++) {
            const int o2_k = block_k * 64;
            nt_barrier_wait(empty_A_B + 8 * slot_A_B, parity_A_B);
            nt_barrier_expect(full_A_B + 8 * slot_A_B, 32768);
            nt_tma_load_2d(in_A_B + slot_A_B * 32768, &map_A, full_A_B + 8 * slot_A_B, o2_k, o0_m);
            nt_tma_load_2d(in_A_B + slot_A_B * 32768 + 16384, &map_B, full_A_B + 8 * slot_A_B, o2_k, o1_n);
            if (++slot_A_B == 5) { slot_A_B = 0; parity_A_B ^= 1; }
          }
        }
      }
    }
  } else {
    nt_take_registers<232>();
    const int w = warpgroup - 1;
    const int lane_column = (lane & 3) * 2;
    float t_acc[2][64];
    int slot_A_B = 0; nt_u32 parity_A_B = 0;
    if (w == 1) nt_named_arrive(3, 256);
    parity_A_B ^= (slot_A_B + w * 64) / 5 & 1;
    slot_A_B = (slot_A_B + w * 64) % 5;
    for (int number = blockIdx.x + w * gridDim.x; number < 1024; number += 2 * gridDim.x) {
      const int inner = number % 1024;
      const int band = inner / 512, within = inner % 512;
      const int high = 16;
      const int tile_row = band * 16 + within % high, tile_column = within / high;
      const int o0_m = tile_row * 128;
      const int o1_n = tile_column * 128;
      int keep_acc = 0;
      nt_named_sync(3 + w, 256);
      {  // blocks of k
        const int first_k = 0;
        const int stop_k = 64;
        #pragma unroll 1
        for (int block_k = first_k; block_k < stop_k; block_k++) {
          nt_barrier_wait(full_A_B + 8 * slot_A_B, parity_A_B);
          nt_wgmma_fence();
          {
            const nt_u64 left = nt_descriptor<128>(in_A_B + slot_A_B * 32768);
            const nt_u64 right = nt_descriptor<128>(in_A_B + slot_A_B * 32768 + 16384);
            #pragma unroll
            for (int k = 0; k < 4; k++) {
              nt_wgmma_ss_n128_bf16(t_acc[0], left + k * 2, right + k * 2, (k != 0) | keep_acc);
              nt_wgmma_ss_n128_bf16(t_acc[1], left + k * 2 + 512, right + k * 2, (k != 0) | keep_acc);
            }
          }
          keep_acc = 1;
          nt_wgmma_commit();
          nt_wgmma_wait1_f64_f64(t_acc[0], t_acc[1]);
          if (lane == 0 && block_k != first_k) nt_barrier_arrive(empty_A_B + 8 * (slot_A_B == 0 ? 4 : slot_A_B - 1));
          if (++slot_A_B == 5) { slot_A_B = 0; parity_A_B ^= 1; }
        }
      }
      nt_named_arrive(3 + (w == 1 ? 0 : w + 1), 256);
      nt_wgmma_wait0_f64_f64(t_acc[0], t_acc[1]);
      if (lane == 0) nt_barrier_arrive(empty_A_B + 8 * (slot_A_B == 0 ? 4 : slot_A_B - 1));
      // C = ((acc + bias[n]) * sigmoid((((acc + bias[n]) + ((((acc + bias[n]) * (acc + bias[n])) * (acc +
      {
        const nt_u32 staging = shared + 163840 + w * 32768;
        const nt_u32 put_row = (warp & 3) * 16 + (lane & 15);
        #pragma unroll
        for (int panel = 0; panel < 2; panel++) {
          const nt_u32 to = staging + (panel & 1) * 16384;
          if (panel == 0) {
            if ((threadIdx.x & 127) == 0) {
              nt_bulk_wait_read<0>();
            }
            nt_named_sync(1 + w, 128);
          }
          #pragma unroll
          for (int part = 0; part < 4; part++) {
            float v[2][8];
            #pragma unroll
            for (int half = 0; half < 2; half++) {
              const int j = panel * 8 + part * 2 + half;
              const int p_pair = o1_n + lane_column + j * 8;
              #pragma unroll
              for (int e = 0; e < 4; e++) {
                nt_u32 w0[1];
                nt_read(w0, g_0_bias + p_pair);
                #pragma unroll
                for (int q = 0; q < 2; q++) {
                  const float x0 = t_acc[e >> 1][4 * j + 2 * (e & 1) + q] + (nt_f32_of_bf16((nt_u16)(w0[q >> 1] >> (q & 1) * 16)));
                  v[e >> 1][4 * half + 2 * (e & 1) + q] = x0 * (nt_sigmoid_fast(((x0 + (((x0 * x0) * x0) * 0.044715f)) * 1.5957692f)));
                }
              }
            }
            nt_put_fragments(to + put_row * 128 + (((part * 2 + (lane >> 4)) ^ (put_row & 7)) << 4),
                nt_bf16x2_of_f32(v[0][0], v[0][1]),
                nt_bf16x2_of_f32(v[0][2], v[0][3]),
                nt_bf16x2_of_f32(v[0][4], v[0][5]),
                nt_bf16x2_of_f32(v[0][6], v[0][7]));
            nt_put_fragments(to + put_row * 128 + (((part * 2 + (lane >> 4)) ^ (put_row & 7)) << 4) + 8192,
                nt_bf16x2_of_f32(v[1][0], v[1][1]),
                nt_bf16x2_of_f32(v[1][2], v[1][3]),
                nt_bf16x2_of_f32(v[1][4], v[1][5]),
                nt_bf16x2_of_f32(v[1][6], v[1][7]));
          }
          nt_async_fence();
          nt_named_sync(1 + w, 128);
          if ((threadIdx.x & 127) == 0) {
            nt_tma_store_2d(&map_C, to, o1_n + panel * 64, o0_m);
            nt_tma_store_2d(&map_C, to + 8192, o1_n + panel * 64, o0_m + 64);
            nt_bulk_commit();
          }
        }
      }
      parity_A_B ^= (slot_A_B + 64) / 5 & 1;
      slot_A_B = (slot_A_B + 64) % 5;
    }
    if ((threadIdx.x & 127) == 0) nt_bulk_wait<0>();
  }
}
