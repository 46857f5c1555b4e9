// Register tiles of contractions that run on the ordinary arithmetic units.

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
