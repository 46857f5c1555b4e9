// Scalar arithmetic with the language's meaning: NaN-propagating max and min, floor division, sign of
// the divisor for %, round half to even, conversions of narrow types held as integers. No includes.
// Blocks are separated by blank lines; a kernel receives the blocks that it needs (codegen/headers.py).

typedef unsigned int nt_u32;

typedef unsigned short nt_u16;

typedef unsigned char nt_u8;

typedef long long nt_i64;

#define NT_DEV __device__ __forceinline__

NT_DEV float nt_inf() { return __uint_as_float(0x7f800000u); }

NT_DEV float nt_nan() { return __uint_as_float(0x7fffffffu); }

NT_DEV float nt_max(float a, float b) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }

NT_DEV float nt_min(float a, float b) { float r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }

NT_DEV double nt_max_f64(double a, double b) { return (a != a || a > b) ? a : b; }

NT_DEV double nt_min_f64(double a, double b) { return (a != a || a < b) ? a : b; }

template <class T> NT_DEV T nt_max_int(T a, T b) { return a > b ? a : b; }

template <class T> NT_DEV T nt_min_int(T a, T b) { return a < b ? a : b; }

// floor of the quotient; 0 for a zero divisor, as NumPy has it
template <class T> NT_DEV T nt_floordiv_int(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return -a;
  const T q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

template <class T> NT_DEV T nt_mod_int(T a, T b) {
  if (b == 0 || b == -1) return 0;
  const T r = a % b;
  return r + ((r != 0 && ((r < 0) != (b < 0))) ? b : 0);
}

NT_DEV float nt_mod(float a, float b) {
  const float r = fmodf(a, b);
  if (r == 0.f) return copysignf(0.f, b);
  return ((b < 0.f) != (r < 0.f)) ? r + b : r;
}

NT_DEV double nt_mod_f64(double a, double b) {
  const double r = fmod(a, b);
  if (r == 0.0) return copysign(0.0, b);
  return ((b < 0.0) != (r < 0.0)) ? r + b : r;
}

NT_DEV float nt_floordiv(float a, float b) {
  if (b == 0.f) return a / b;
  const float r = fmodf(a, b);
  float q = (a - r) / b;
  if (r != 0.f && ((b < 0.f) != (r < 0.f))) q -= 1.f;
  if (q == 0.f) return copysignf(0.f, a / b);
  const float f = floorf(q);
  return (q - f > 0.5f) ? f + 1.f : f;
}

NT_DEV double nt_floordiv_f64(double a, double b) {
  if (b == 0.0) return a / b;
  const double r = fmod(a, b);
  double q = (a - r) / b;
  if (r != 0.0 && ((b < 0.0) != (r < 0.0))) q -= 1.0;
  if (q == 0.0) return copysign(0.0, a / b);
  const double f = floor(q);
  return (q - f > 0.5) ? f + 1.0 : f;
}

NT_DEV float nt_sign(float a) { return a > 0.f ? 1.f : a < 0.f ? -1.f : a == 0.f ? 0.f : a; }

NT_DEV double nt_sign_f64(double a) { return a > 0.0 ? 1.0 : a < 0.0 ? -1.0 : a == 0.0 ? 0.0 : a; }

template <class T> NT_DEV T nt_sign_int(T a) { return (a > 0) - (a < 0); }

NT_DEV float nt_ex2(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }

NT_DEV float nt_lg2(float x) { float r; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }

NT_DEV float nt_rcp(float x) { float r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }

// four positive numbers of at least 2^-20 become their reciprocals, within 3 ulp, by one operation of
// the special-function unit; those beyond 2^31, and NaN, become 2^-31
NT_DEV void nt_reciprocals_of_numbers(float& a, float& b, float& c, float& d) {
  const float most = 2147483648.f;
  const float p = fminf(a, most), q = fminf(b, most), r = fminf(c, most), s = fminf(d, most);
  const float pq = p * q, rs = r * s, one = nt_rcp(pq * rs), x = one * rs, y = one * pq;
  a = x * q;
  b = x * p;
  c = y * s;
  d = y * r;
}

// the same, but a NaN stays one
NT_DEV void nt_reciprocals(float& a, float& b, float& c, float& d) {
  const float p = a, q = b, r = c, s = d;
  nt_reciprocals_of_numbers(a, b, c, d);
  a = nt_max(a, -p);
  b = nt_max(b, -q);
  c = nt_max(c, -r);
  d = nt_max(d, -s);
}

// at most 2 ulp over the whole range
NT_DEV float nt_div(float a, float b) { float r; asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }

NT_DEV float nt_sqrt_fast(float x) { float r; asm("sqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }

NT_DEV float nt_exp_fast(float x) { return nt_ex2(x * 1.4426950408889634f); }

NT_DEV float nt_log_fast(float x) { return nt_lg2(x) * 0.6931471805599453f; }

NT_DEV float nt_sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

NT_DEV double nt_sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }

NT_DEV float nt_sigmoid_fast(float x) { return nt_rcp(1.f + nt_ex2(x * -1.4426950408889634f)); }

// relative error below 1e-6 by two special-function operations
NT_DEV float nt_tanh_fast(float x) {
  const float large = 1.f - 2.f * nt_rcp(1.f + nt_ex2(x * 2.8853900817779268f));
  const float s = x * x, small = x * (1.f + s * (-0.33333333f + s * (0.13333333f - 0.053968254f * s)));
  return fabsf(x) < 0.15f ? small : large;
}

// relative error below 1e-6, absolute below 4e-7, by two special-function operations: Abramowitz and
// Stegun's 7.1.26, and the series near 0
NT_DEV float nt_erf_fast(float x) {
  const float a = fabsf(x), t = nt_rcp(fmaf(0.3275911f, a, 1.f)), s = x * x;
  const float p = t * fmaf(fmaf(fmaf(fmaf(1.061405429f, t, -1.453152027f), t, 1.421413741f), t, -0.284496736f), t, 0.254829592f);
  const float large = fmaf(-p, nt_ex2(s * -1.4426950408889634f), 1.f);
  const float small = a * fmaf(fmaf(fmaf(-0.0268661706f, s, 0.112837917f), s, -0.376126389f), s, 1.12837917f);
  return copysignf(a < 0.3f ? small : large, x);
}

// relative error 2^-11 by one special-function operation
NT_DEV float nt_tanh_approx(float x) { float r; asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }

// tanh(v / 4) for |v| < 2: absolute error 2e-7, by an odd polynomial of least largest error
NT_DEV float nt_tanh_near(float v) {
  const float s = v * v;
  return v * fmaf(fmaf(fmaf(-2.647243e-6f, s, 1.2837054e-4f), s, -5.2063526e-3f), s, 0.24999942f);
}

// the same, by a polynomial of the fifth degree: absolute error 5.4e-6
NT_DEV float nt_tanh_near_5(float v) {
  const float s = v * v;
  return v * fmaf(fmaf(1.0990355e-4f, s, -5.1696096e-3f), s, 0.24998121f);
}

NT_DEV float nt_sin_approx(float x) { float r; asm("sin.approx.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }

NT_DEV float nt_cos_approx(float x) { float r; asm("cos.approx.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }

// x less a multiple of 2 pi, by Cody and Waite's two steps
NT_DEV float nt_turn(float x) {
  const float k = fmaf(x, 0.15915494f, 12582912.f) - 12582912.f;  // rounded by what an addend of 1.5 * 2^23 cuts
  return fmaf(k, 1.7484556e-7f, fmaf(k, -6.2831855f, x));
}

NT_DEV float nt_sin_fast(float x) { return nt_sin_approx(nt_turn(x)); }

NT_DEV float nt_cos_fast(float x) { return nt_cos_approx(nt_turn(x)); }

NT_DEV float nt_f32_of_bf16(nt_u16 x) { return __uint_as_float((nt_u32)x << 16); }

NT_DEV nt_u16 nt_bf16_of_f32(float x) { nt_u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }

// two values in one register, the first in the low half
NT_DEV nt_u32 nt_bf16x2_of_f32(float lo, float hi) { nt_u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }

NT_DEV float nt_f32_of_f16(nt_u16 x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }

NT_DEV nt_u16 nt_f16_of_f32(float x) { nt_u16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }

NT_DEV nt_u32 nt_f16x2_of_f32(float lo, float hi) { nt_u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }

// ten bits of mantissa, ties away from zero
NT_DEV float nt_tf32_of_f32(float x) { nt_u32 r; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x)); return __uint_as_float(r); }

NT_DEV float nt_f32_of_f8e5m2(nt_u8 x) { return nt_f32_of_f16((nt_u16)((nt_u32)x << 8)); }

// the bits of e4m3 are those of an f16 that is 2^8 times smaller; there is no infinity
NT_DEV float nt_f32_of_f8e4m3(nt_u8 x) {
  const nt_u16 h = (nt_u16)(((nt_u32)(x & 0x80) << 8) | ((nt_u32)(x & 0x7f) << 7));
  return (x & 0x7f) == 0x7f ? nt_nan() : nt_f32_of_f16(h) * 256.f;
}

// nearest even; what passes the largest finite value becomes NaN
NT_DEV nt_u8 nt_f8e4m3_of_f32(float x) {
  const nt_u32 u = __float_as_uint(x), s = (u >> 24) & 0x80u, a = u & 0x7fffffffu;
  if (a < 0x3c800000u) return (nt_u8)(s | (nt_u32)rintf(__uint_as_float(a) * 512.f));
  if (a > 0x7f000000u) return (nt_u8)(s | 0x7fu);
  const nt_u32 r = ((a + 0x7ffffu + ((a >> 20) & 1u)) >> 20) - (120u << 3);
  return (nt_u8)(s | (r > 0x7eu ? 0x7fu : r));
}

// nearest even; what passes the largest finite value becomes infinite
NT_DEV nt_u8 nt_f8e5m2_of_f32(float x) {
  const nt_u32 u = __float_as_uint(x), s = (u >> 24) & 0x80u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return (nt_u8)(s | 0x7eu);
  if (a < 0x38800000u) return (nt_u8)(s | (nt_u32)rintf(__uint_as_float(a) * 65536.f));
  if (a > 0x7f000000u) return (nt_u8)(s | 0x7cu);
  const nt_u32 r = ((a + 0xfffffu + ((a >> 21) & 1u)) >> 21) - (112u << 2);
  return (nt_u8)(s | (r > 0x7cu ? 0x7cu : r));
}

NT_DEV float nt_round_bf16(float x) { return nt_f32_of_bf16(nt_bf16_of_f32(x)); }

NT_DEV float nt_round_f16(float x) { return nt_f32_of_f16(nt_f16_of_f32(x)); }

NT_DEV float nt_round_f8e4m3(float x) { return nt_f32_of_f8e4m3(nt_f8e4m3_of_f32(x)); }

NT_DEV float nt_round_f8e5m2(float x) { return nt_f32_of_f8e5m2(nt_f8e5m2_of_f32(x)); }

// what was summed so far, brought to a new reference; a factor of 0 drops it, NaN included
NT_DEV float nt_repair(float sum, float factor) { return factor == 0.f ? 0.f : sum * factor; }

NT_DEV double nt_repair_f64(double sum, double factor) { return factor == 0.0 ? 0.0 : sum * factor; }
