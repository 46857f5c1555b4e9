typedef unsigned char nt_u8;
typedef long long nt_i64;
#define NT_DEV __device__ __forceinline__
template <class T> NT_DEV T nt_min_int(T a, T b) { return a < b ? a : b; }
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

// tile program mm  [n:32/70 m:32/50 k:100/100]  grid (n, m)
//     for blocks of k:
//         t1[n, k]: f64 = read a[n, k]
//         t2[m, k]: f64 = read b[k, m]
//         m0[n, m]: f64 = mma[k](t1, t2) in f64
//     write c[n, m] = m0 as f64
extern "C" __global__ void __launch_bounds__(256) mm(
    const double* __restrict__ p_a, const double* __restrict__ p_b, double* __restrict__ p_c) {
  extern __shared__ nt_u8 nt_shared[];
  double* const s_m0 = (double*)(nt_shared);
  const int o_n = (int)(blockIdx.x / 2 % 3) * 32;
  const int o_m = (int)(blockIdx.x % 2) * 32;
  double a_m0[2][2] = {};
  const int first_k = 0, stop_k = 1;
  for (int b_k = first_k; b_k < stop_k; b_k++) {
    const int o_k = b_k * 100;
    {
      double* const left = (double*)(nt_shared);
      double* const right = left + 576;
      double next_left[2];
      double next_right[2];
      for (int k0 = -16; k0 < 100; k0 += 16) {
        if (k0 + 16 < 100) {
          #pragma unroll
          for (int n = 0; n < 2; n++) {
            const int x = threadIdx.x + n * 256;
            const int own = x / 16 % 32, place = x % 16, k = k0 + 16 + place;
            const int batch = x / 512;
            double value = 0.0;
            if (k < 100) {
              const int l_n = own;
              const int i_n = nt_min_int(o_n + l_n, 69);
              const int l_k = k;
              const int i_k = o_k + l_k;
              value = (p_a[((i_n * 100) + i_k)]);
            }
            next_left[n] = value;
          }
          #pragma unroll
          for (int n = 0; n < 2; n++) {
            const int x = threadIdx.x + n * 256;
            const int own = x % 32, place = x / 32 % 16, k = k0 + 16 + place;
            const int batch = x / 512;
            double value = 0.0;
            if (k < 100) {
              const int l_m = own;
              const int i_m = nt_min_int(o_m + l_m, 49);
              const int l_k = k;
              const int i_k = o_k + l_k;
              value = (p_b[((i_k * 50) + i_m)]);
            }
            next_right[n] = value;
          }
        }
        if (k0 >= 0)
        {
          {
            const int item = threadIdx.x, column_item = item % 16;
            const int row_item = item / 16 % 16;
            const int batch = item / 256;
            #pragma unroll
            for (int k = 0; k < 16; k++) {
              double l[2], r[2];
              nt_take<2, 16>(l, left + (batch * 16 + k) * 36, row_item);
              nt_take<2, 16>(r, right + (batch * 16 + k) * 36, column_item);
              #pragma unroll
              for (int i = 0; i < 2; i++) {
                #pragma unroll
                for (int j = 0; j < 2; j++) a_m0[i][j] += l[i] * r[j];
              }
            }
          }
        }
        __syncthreads();
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          const int x = threadIdx.x + n * 256;
          left[(x / 512 * 16 + x % 16) * 36 + x / 16 % 32] = next_left[n];
        }
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          const int x = threadIdx.x + n * 256;
          right[(x / 512 * 16 + x / 32 % 16) * 36 + x % 32] = next_right[n];
        }
        __syncthreads();
      }
    }
  }
  if (threadIdx.x < 256) {
    const int item = threadIdx.x, column_item = item % 16;
    const int row_item = item / 16 % 16;
    const int batch = item / 256;
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      #pragma unroll
      for (int j = 0; j < 2; j++) {
        const int row = nt_index<2, 16>(row_item, i);
        const int column = nt_index<2, 16>(column_item, j);
        const int l_n = row;
        const int i_n = nt_min_int(o_n + l_n, 69);
        const int l_m = column;
        const int i_m = nt_min_int(o_m + l_m, 49);
        s_m0[l_n * 32 + l_m] = a_m0[i][j];
      }
    }
  }
  __syncthreads();
  for (int x = threadIdx.x; x < 1024; x += 256) {
    const int l_n = x / 32;
    const int i_n = nt_min_int(o_n + l_n, 69);
    const int l_m = x % 32;
    const int i_m = nt_min_int(o_m + l_m, 49);
    if (!(o_n + l_n < 70 && o_m + l_m < 50)) continue;
    p_c[((nt_i64)((i_n * 50) + i_m))] = (s_m0[l_n * 32 + l_m]);
  }
  __syncthreads();
}
