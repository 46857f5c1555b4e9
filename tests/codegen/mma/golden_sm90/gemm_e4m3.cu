// kernel
// memory program gemm: 2 consumer warpgroups share a tile of 128 rows of m; 230512 bytes shared
//   registers: producer 40, consumers 232
//   ring A_B: 6 x 32768 bytes at 0
//     a[m, k]: 128 x 128 f8e4m3 at 0, 1 panels of 128 bytes; A at (k, m)
//     b[n, k]: 128 x 128 f8e4m3 at 16384, 1 panels of 128 bytes; B at (k, n)
//   registers acc: 64 x 1 a thread: acc
//   registers acc_part: 64 x 1 a thread: acc_part
//   role producer
//     for each tile, static
//       for each block of k
//         wait empty A_B
//         fill A_B
//         advance A_B
//   role consumer
//     for each tile, static
//       clear acc to 0.0
//       for each block of k
//         wait full A_B
//         fence
//         issue acc_part (fresh) += a x b over 128 of k, 128 columns of f8e4m3, left in shared memory
//         commit group
//         wait group 0: acc_part
//         release A_B
//         advance A_B
//         promote acc += acc_part
//       store tile C <- acc
extern "C" __global__ void __launch_bounds__(384, 1)
k_gemm(const __grid_constant__ nt_map map_A, const __grid_constant__ nt_map map_B, const __grid_constant__ nt_map map_C) {
  extern __shared__ unsigned char memory[];
  const nt_u32 shared = (nt_shared(memory) + 1023) & ~1023u;
  const nt_u32 in_A_B = shared;  // 6 x 32768 bytes: a, b
  const nt_u32 full_A_B = shared + 229376;
  const nt_u32 empty_A_B = shared + 229424;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int warpgroup = nt_uniform(threadIdx.x >> 7);
  if (threadIdx.x == 0) {
    nt_map_prefetch(&map_A);
    nt_map_prefetch(&map_B);
    nt_map_prefetch(&map_C);
    for (int i = 0; i < 6; i++) {
      nt_barrier_init(full_A_B + 8 * i, 1);
      nt_barrier_init(empty_A_B + 8 * i, 8);
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
          const int stop_k = 32;
          #pragma unroll 1
          for (int block_k = first_k; block_k < stop_k; block_k++) {
            const int o2_k = block_k * 128;
            nt_barrier_wait(empty_A_B + 8 * slot_A_B, parity_A_B);
            nt_barrier_expect(full_A_B + 8 * slot_A_B, 32768);
            nt_tma_load_2d(in_A_B + slot_A_B * 32768, &map_A, full_A_B + 8 * slot_A_B, o2_k, o0_m);
            nt_tma_load_2d(in_A_B + slot_A_B * 32768 + 16384, &map_B, full_A_B + 8 * slot_A_B, o2_k, o1_n);
            if (++slot_A_B == 6) { slot_A_B = 0; parity_A_B ^= 1; }
          }
        }
      }
    }
  } else {
    nt_take_registers<232>();
    const int w = warpgroup - 1;
    float t_acc[64];
    float t_acc_part[64];
    int slot_A_B = 0; nt_u32 parity_A_B = 0;
    for (int number = blockIdx.x; number < 1024; number += gridDim.x) {
      const int inner = number % 1024;
      const int band = inner / 512, within = inner % 512;
      const int high = 16;
      const int tile_row = band * 16 + within % high, tile_column = within / high;
      const int o0_m = tile_row * 128;
      const int o1_n = tile_column * 128;
      #pragma unroll
      for (int j = 0; j < 16; j++) {
        #pragma unroll
        for (int e = 0; e < 2; e++) {
          #pragma unroll
          for (int q = 0; q < 2; q++) t_acc[4 * j + 2 * e + q] = 0.0f;
        }
      }
      {  // blocks of k
        const int first_k = 0;
        const int stop_k = 32;
        #pragma unroll 1
        for (int block_k = first_k; block_k < stop_k; block_k++) {
          nt_barrier_wait(full_A_B + 8 * slot_A_B, parity_A_B);
          nt_wgmma_fence();
          {
            const nt_u64 left = nt_descriptor<128>(in_A_B + slot_A_B * 32768 + w * 8192);
            const nt_u64 right = nt_descriptor<128>(in_A_B + slot_A_B * 32768 + 16384);
            #pragma unroll
            for (int k = 0; k < 4; k++) {
              nt_wgmma_ss_n128_f8e4m3(t_acc_part, left + k * 2, right + k * 2, k != 0);
            }
          }
          nt_wgmma_commit();
          nt_wgmma_wait0_f64(t_acc_part);
          if (lane == 0) nt_barrier_arrive(empty_A_B + 8 * slot_A_B);
          if (++slot_A_B == 6) { slot_A_B = 0; parity_A_B ^= 1; }
          #pragma unroll
          for (int j = 0; j < 16; j++) {
            #pragma unroll
            for (int e = 0; e < 2; e++) {
              #pragma unroll
              for (int q = 0; q < 2; q++) t_acc[4 * j + 2 * e + q] += t_acc_part[4 * j + 2 * e + q];
            }
          }
        }
      }
      // C = acc
      {
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
                  v[4 * half + 2 * e + q] = t_acc[4 * j + 2 * e + q];
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
            nt_tma_store_2d(&map_C, to, o1_n + panel * 64, o0_m + w * 64);
            nt_bulk_commit();
          }
        }
      }
    }
    if ((threadIdx.x & 127) == 0) nt_bulk_wait<0>();
  }
}
