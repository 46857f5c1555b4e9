typedef unsigned int nt_u32;
typedef unsigned char nt_u8;
typedef long long nt_i64;
#define NT_DEV __device__ __forceinline__
template <class T> NT_DEV T nt_min_int(T a, T b) { return a < b ? a : b; }
// another lane's copy of a plain struct
template <class S> NT_DEV S nt_other(const S& s, int distance) {
  constexpr int n = (sizeof(S) + 3) / 4;
  nt_u32 w[n] = {};
  memcpy(w, &s, sizeof(S));
  #pragma unroll
  for (int k = 0; k < n; k++) w[k] = __shfl_xor_sync(~0u, w[k], distance);
  S r;
  memcpy(&r, w, sizeof(S));
  return r;
}
// partial states of THREADS neighbouring threads merged; every thread gets the result. `shared` has a
// slot for each warp of the block, and is used once.
template <int THREADS, class S, class F> NT_DEV S nt_reduce(S s, F merge, S* shared) {
  constexpr int width = THREADS < 32 ? THREADS : 32, warps = THREADS / 32;
  #pragma unroll
  for (int d = width / 2; d > 0; d /= 2) s = merge(s, nt_other(s, d));
  if constexpr (warps > 1) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (lane == 0) shared[warp] = s;
    __syncthreads();
    s = shared[(warp / warps) * warps + lane % warps];
    #pragma unroll
    for (int d = warps / 2; d > 0; d /= 2) s = merge(s, nt_other(s, d));
  }
  return s;
}
// which of N * ITEMS positions is the i-th of an item: groups of four neighbours, then strided groups
template <int N, int ITEMS> NT_DEV int nt_index(int item, int i) {
  return N >= 4 ? item * 4 + (i & 3) + (i >> 2) * (4 * ITEMS) : item * N + i;
}
template <class T> struct alignas(4 * sizeof(T)) nt_four { T x[4]; };
template <int N, int ITEMS, class T> NT_DEV void nt_take(T* r, const T* s, int item) {
  if constexpr (N >= 4) {
    #pragma unroll
    for (int g = 0; g < N / 4; g++) {
      const nt_four<T> q = *(const nt_four<T>*)(s + item * 4 + g * (4 * ITEMS));
      #pragma unroll
      for (int e = 0; e < 4; e++) r[4 * g + e] = q.x[e];
    }
  } else {
    #pragma unroll
    for (int e = 0; e < N; e++) r[e] = s[item * N + e];
  }
}

// tile program product  [n:8/20 e:12/12 c:16/90]  grid (n, e)
//     t3[]: i32 = 1
//     for blocks of c:
//         t1[n, c] = read x[n, c]
//         r0[n] = sum[c](t1), r0_before before
//         r2[]: i32 = sum[c](t3), r2_before before
//         t5[e, c] = read v[c, e]
//         r4[e] = sum[c](t5), r4_before before
//         t6[n, e] = where((r2_before == 0), 0, (((r0_before / r2_before) - (r0 / r2)) * r4_before))
//         t8[n, c] = (t1 - (r0 / r2))
//         m7[n, e] = mma[c](t8, t5) in f32 moved by t6
//     write y[n, e] = m7 as f32
extern "C" __global__ void __launch_bounds__(256) product(
    const float* __restrict__ p_x, const float* __restrict__ p_v, float* __restrict__ p_y) {
  extern __shared__ nt_u8 nt_shared[];
  float* const s_r0 = (float*)(nt_shared);
  float* const s_r0_before = (float*)(nt_shared + 32);
  int* const s_r2 = (int*)(nt_shared + 64);
  int* const s_r2_before = (int*)(nt_shared + 80);
  float* const s_r4 = (float*)(nt_shared + 96);
  float* const s_r4_before = (float*)(nt_shared + 144);
  float* const s_m7 = (float*)(nt_shared + 192);
  const int o_n = (int)(blockIdx.x % 3) * 8;
  const int o_e = 0;
  for (int x = threadIdx.x; x < 8; x += 256) {
    s_r0[x] = 0.0f;
  }
  __syncthreads();
  for (int x = threadIdx.x; x < 1; x += 256) {
    s_r2[x] = 0;
  }
  __syncthreads();
  for (int x = threadIdx.x; x < 12; x += 256) {
    s_r4[x] = 0.0f;
  }
  __syncthreads();
  float a_m7[1][1] = {};
  const int first_c = 0, stop_c = 6;
  for (int b_c = first_c; b_c < stop_c; b_c++) {
    const int o_c = b_c * 16;
    for (int x0 = 0; x0 < 8; x0 += 16) {
      const int x = nt_min_int(x0 + (int)threadIdx.x / 16, 7);
      const int l_n = x;
      const int i_n = nt_min_int(o_n + l_n, 19);
      float r0 = 0.0f;
      for (int k = threadIdx.x % 16; k < 16; k += 16) {
        const int l_c = k;
        const int i_c = nt_min_int(o_c + l_c, 89);
        if (!(o_c + l_c < 90)) break;
        r0 = r0 + (p_x[((i_n * 90) + i_c)]);
      }
      struct State0 { float r0; };
      auto merge0 = [](const State0& a, const State0& b) {
        State0 c;
        c.r0 = a.r0 + b.r0;
        return c;
      };
      const State0 all0 = nt_reduce<16>(State0{r0}, merge0, (State0*)0);
      r0 = all0.r0;
      if (x0 + (int)threadIdx.x / 16 < 8 && threadIdx.x % 16 == 0) {
        s_r0_before[x] = s_r0[x];
        s_r0[x] = s_r0[x] + r0;
      }
    }
    __syncthreads();
    for (int x0 = 0; x0 < 1; x0 += 16) {
      const int x = nt_min_int(x0 + (int)threadIdx.x / 16, 0);
      int r2 = 0;
      for (int k = threadIdx.x % 16; k < 16; k += 16) {
        const int l_c = k;
        const int i_c = nt_min_int(o_c + l_c, 89);
        if (!(o_c + l_c < 90)) break;
        r2 = r2 + 1;
      }
      struct State0 { int r2; };
      auto merge0 = [](const State0& a, const State0& b) {
        State0 c;
        c.r2 = a.r2 + b.r2;
        return c;
      };
      const State0 all0 = nt_reduce<16>(State0{r2}, merge0, (State0*)0);
      r2 = all0.r2;
      if (x0 + (int)threadIdx.x / 16 < 1 && threadIdx.x % 16 == 0) {
        s_r2_before[x] = s_r2[x];
        s_r2[x] = s_r2[x] + r2;
      }
    }
    __syncthreads();
    for (int x0 = 0; x0 < 12; x0 += 16) {
      const int x = nt_min_int(x0 + (int)threadIdx.x / 16, 11);
      const int l_e = x;
      const int i_e = o_e + l_e;
      float r4 = 0.0f;
      for (int k = threadIdx.x % 16; k < 16; k += 16) {
        const int l_c = k;
        const int i_c = nt_min_int(o_c + l_c, 89);
        if (!(o_c + l_c < 90)) break;
        r4 = r4 + (p_v[((i_c * 12) + i_e)]);
      }
      struct State0 { float r4; };
      auto merge0 = [](const State0& a, const State0& b) {
        State0 c;
        c.r4 = a.r4 + b.r4;
        return c;
      };
      const State0 all0 = nt_reduce<16>(State0{r4}, merge0, (State0*)0);
      r4 = all0.r4;
      if (x0 + (int)threadIdx.x / 16 < 12 && threadIdx.x % 16 == 0) {
        s_r4_before[x] = s_r4[x];
        s_r4[x] = s_r4[x] + r4;
      }
    }
    __syncthreads();
    if (threadIdx.x < 96) {
      const int item = threadIdx.x, column_item = item % 12;
      const int row_item = item / 12 % 8;
      const int batch = item / 96;
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int j = 0; j < 1; j++) {
          const int row = nt_index<1, 8>(row_item, i);
          const int column = nt_index<1, 12>(column_item, j);
          const int l_n = row;
          const int i_n = nt_min_int(o_n + l_n, 19);
          const int l_e = column;
          const int i_e = o_e + l_e;
          const int v_0 = s_r2_before[0];
          a_m7[i][j] = (a_m7[i][j] + ((v_0 == 0) ? 0.0f : ((((s_r0_before[l_n]) / ((float)v_0)) - ((s_r0[l_n]) / ((float)(s_r2[0])))) * (s_r4_before[l_e]))));
        }
      }
    }
    {
      float* const left = (float*)(nt_shared + 192);
      float* const right = left + 192;
      float next_left[1];
      float next_right[1];
      for (int k0 = -16; k0 < 16; k0 += 16) {
        if (k0 + 16 < 16) {
          #pragma unroll
          for (int n = 0; n < 1; n++) {
            const int x = threadIdx.x + n * 256;
            if (x >= 128) break;
            const int own = x % 8, place = x / 8 % 16, k = k0 + 16 + place;
            const int batch = x / 128;
            float value = 0.0f;
            {
              const int l_n = own;
              const int i_n = nt_min_int(o_n + l_n, 19);
              const int l_c = k;
              const int i_c = nt_min_int(o_c + l_c, 89);
              if (o_c + l_c < 90) value = ((p_x[((i_n * 90) + i_c)]) - ((s_r0[l_n]) / ((float)(s_r2[0]))));
            }
            next_left[n] = value;
          }
          #pragma unroll
          for (int n = 0; n < 1; n++) {
            const int x = threadIdx.x + n * 256;
            if (x >= 192) break;
            const int own = x % 12, place = x / 12 % 16, k = k0 + 16 + place;
            const int batch = x / 192;
            float value = 0.0f;
            {
              const int l_e = own;
              const int i_e = o_e + l_e;
              const int l_c = k;
              const int i_c = nt_min_int(o_c + l_c, 89);
              if (o_c + l_c < 90) value = (p_v[((i_c * 12) + i_e)]);
            }
            next_right[n] = value;
          }
        }
        if (k0 >= 0)
        {
          if (threadIdx.x < 96) {
            const int item = threadIdx.x, column_item = item % 12;
            const int row_item = item / 12 % 8;
            const int batch = item / 96;
            #pragma unroll
            for (int k = 0; k < 16; k++) {
              float l[1], r[1];
              nt_take<1, 8>(l, left + (batch * 16 + k) * 12, row_item);
              nt_take<1, 12>(r, right + (batch * 16 + k) * 16, column_item);
              #pragma unroll
              for (int i = 0; i < 1; i++) {
                #pragma unroll
                for (int j = 0; j < 1; j++) a_m7[i][j] += l[i] * r[j];
              }
            }
          }
        }
        __syncthreads();
        #pragma unroll
        for (int n = 0; n < 1; n++) {
          const int x = threadIdx.x + n * 256;
          if (x >= 128) break;
          left[(x / 128 * 16 + x / 8 % 16) * 12 + x % 8] = next_left[n];
        }
        #pragma unroll
        for (int n = 0; n < 1; n++) {
          const int x = threadIdx.x + n * 256;
          if (x >= 192) break;
          right[(x / 192 * 16 + x / 12 % 16) * 16 + x % 12] = next_right[n];
        }
        __syncthreads();
      }
    }
  }
  if (threadIdx.x < 96) {
    const int item = threadIdx.x, column_item = item % 12;
    const int row_item = item / 12 % 8;
    const int batch = item / 96;
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      #pragma unroll
      for (int j = 0; j < 1; j++) {
        const int row = nt_index<1, 8>(row_item, i);
        const int column = nt_index<1, 12>(column_item, j);
        const int l_n = row;
        const int i_n = nt_min_int(o_n + l_n, 19);
        const int l_e = column;
        const int i_e = o_e + l_e;
        s_m7[l_n * 12 + l_e] = a_m7[i][j];
      }
    }
  }
  __syncthreads();
  for (int x = threadIdx.x; x < 96; x += 256) {
    const int l_n = x / 12;
    const int i_n = nt_min_int(o_n + l_n, 19);
    const int l_e = x % 12;
    const int i_e = o_e + l_e;
    if (!(o_n + l_n < 20)) continue;
    p_y[((nt_i64)((i_n * 12) + i_e))] = (s_m7[l_n * 12 + l_e]);
  }
  __syncthreads();
}
