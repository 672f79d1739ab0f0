// inductor/cpu/avx512_math.cpp — odd functions as sixteen polynomials each, whose coefficients are looked up in a
// register.
//
// The polynomials are our own fits, like those of vector_math.cpp. The first coefficients are the function values at
// the centres. The distance between centres is chosen so that float32 holds all these values to within a quarter of the
// last place.
#include "inductor/cpu/avx512_math.h"

#include <span>
#include <vector>

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "inductor/cpu/lane_math.h"
#include "inductor/cpu/lane_ops.h"
#include "runtime/base/result.h"

namespace framejit::inductor {
namespace {

using llvm::Value;

constexpr unsigned kLanes = 16;  // of float32 in a register

// Polynomials of x's distance to the nearest multiple of `width`. The first of them omits that distance itself, so that
// the smallest results are exact to the last place. Beyond 15.5 multiples the function is 1.
struct Pieces {
  double width;
  std::span<const float[kLanes]> coefficients;  // the first ones of all polynomials, the second ones, ...
};

// clang-format off
constexpr float kErf[][kLanes] = {
    {0, 0.290768445f, 0.544197679f, 0.736716926f, 0.864183724f, 0.937740326f, 0.9747352f, 0.990951538f,
     0.997146606f, 0.999209225f, 0.999807656f, 0.999958992f, 0.999992371f, 0.999998748f, 0.999999821f, 1},
    {0.128379166f, 1.05259597f, 0.854439914f, 0.603551805f, 0.370988756f, 0.198435903f, 0.0923619047f, 0.0374092311f,
     0.0131849311f, 0.00404380495f, 0.00107923418f, 0.000250642333f, 5.06531433e-05f, 8.90782303e-06f, 1.36316976e-06f,
     1.81527128e-07f},
    {0, -0.277533203f, -0.450578958f, -0.477415591f, -0.391276628f, -0.261624902f, -0.146111593f, -0.0690388381f,
     -0.0278077014f, -0.00960700959f, -0.00283890241f, -0.000723102712f, -0.000171081658f, -2.97285751e-05f,
     -4.88583328e-06f, -1.08484783e-05f},
    {-0.376122653f, -0.302101135f, -0.126426235f, 0.0505676642f, 0.15145424f, 0.163781151f, 0.123325184f, 0.0724906325f,
     0.0347160026f, 0.0138333952f, 0.00464226631f, 0.00132202823f, 0.000321148662f, 6.67925997e-05f, 1.19257156e-05f,
     1.83176519e-06f},
    {0, 0.131268859f, 0.182436749f, 0.13859427f, 0.0506956391f, -0.019508481f, -0.0490103886f, -0.0442214832f,
     -0.0276155192f, -0.0126456507f, -0.0055961269f, -0.00191454147f, 0.000158639581f, -0.000152464287f,
     -2.9200557e-05f, 0.000577501312f},
    {0.112177543f, 0.0774626806f, 0.00034840111f, -0.0583119802f, -0.0665232018f, -0.0379659273f, -0.00631059473f,
    0.0104976697f,
     0.0125983693f, 0.00839932729f, 0.00407876726f, 0.00155944598f, 0.000485256634f, 0.000125108476f, 2.70388118e-05f,
     4.93654579e-06f}};
constexpr float kTanh[][kLanes] = {
    {0, 0.555275559f, 0.848830402f, 0.954307616f, 0.986717761f, 0.996183932f, 0.998907328f, 0.999687433f,
     0.999910593f, 0.99997443f, 0.999992669f, 0.999997914f, 0.999999404f, 0.999999821f, 0.99999994f, 1},
    {-1.45568144e-08f, 0.691669106f, 0.279486924f, 0.0892969966f, 0.0263880324f, 0.00761762261f, 0.00218417449f,
    0.000625043001f,
     0.000178768285f, 5.11213002e-05f, 1.46181856e-05f, 4.18002992e-06f, 1.19526374e-06f, 3.41780719e-07f,
     9.77307621e-08f, 2.79456991e-08f},
    {0, -0.3840698f, -0.237234175f, -0.0852186009f, -0.026034968f, -0.00759295095f, -0.00218393607f, -0.000625500223f,
     -0.000175335532f, -4.94108499e-05f, -1.05790541e-05f, -4.8797101e-06f, -1.48307095e-06f, 1.0964709e-06f,
     1.85161718e-06f, -2.56424187e-06f},
    {-0.333328575f, -0.0172992107f, 0.108212419f, 0.0515570976f, 0.0168957785f, 0.00502033951f, 0.0014513369f,
    0.00041630445f,
     0.000119148011f, 3.4078279e-05f, 9.74530303e-06f, 2.78668131e-06f, 7.9683798e-07f, 2.27855011e-07f,
     6.51541399e-08f, 1.86304216e-08f},
    {0, 0.137727976f, -0.0128441174f, -0.0207514353f, -0.00806214847f, -0.00235230499f, -0.000664172927f,
    -0.00019017364f,
     -0.000152251232f, -6.34081953e-05f, -0.000114457682f, 1.75904952e-05f, 7.41031954e-06f, -3.91361027e-05f,
     -5.29216595e-05f, 6.88046639e-05f},
    {0.133088738f, -0.0550886728f, -0.0190542508f, 0.00465268828f, 0.00283854711f, 0.000959252415f, 0.000286652445f,
    8.29528799e-05f,
     2.3777462e-05f, 6.81191659e-06f, 1.94715881e-06f, 5.57119222e-07f, 1.59415976e-07f, 4.5541082e-08f,
     1.30229267e-08f, 3.72741482e-09f},
    {0, -0.0249050315f, 0.0154895755f, 0.000378947909f, -0.000237102315f, -0.00111162639f, -0.000490629813f,
    -0.000148075807f,
     0.000621599727f, 0.000312650227f, 0.00074362231f, -0.000129121065f, -5.30887337e-05f, 0.000265014329f,
     0.000359206082f, -0.000467369973f},
    {-0.0499057546f, 0.0274829455f, -0.00421314267f, -0.00124832662f, 8.9299996e-05f, 6.66534906e-05f, 2.48044835e-05f,
    7.79623133e-06f,
     2.4381568e-06f, 6.65631035e-07f, 1.98570348e-07f, 5.4361859e-08f, 1.50279647e-08f, 4.54787807e-09f,
     1.29972955e-09f, 3.47426671e-10f}};
// clang-format on

// `f` of each register in turn, for operands of one lane or of whole registers.
Value* in_registers(llvm::IRBuilderBase& b, std::vector<Value*> operands,
                    llvm::function_ref<Value*(const std::vector<Value*>&)> f) {
  const unsigned lanes = LaneOps::lanes_of(operands[0]);
  if (lanes == kLanes) return f(operands);
  if (lanes == 0) {
    for (Value*& x : operands)
      x = b.CreateInsertElement(llvm::PoisonValue::get(llvm::FixedVectorType::get(x->getType(), kLanes)), x,
                                uint64_t{0});
    return b.CreateExtractElement(f(operands), uint64_t{0});
  }
  FJ_ASSERT(lanes % kLanes == 0, "a part of a register");
  const auto shuffled = [&](Value* x, Value* y, unsigned count, llvm::function_ref<unsigned(unsigned)> lane) {
    std::vector<int> mask(count);
    for (unsigned k = 0; k < count; ++k) mask[k] = static_cast<int>(lane(k));
    return b.CreateShuffleVector(x, y, mask);
  };
  Value* result = nullptr;
  for (unsigned from = 0; from < lanes; from += kLanes) {
    std::vector<Value*> part;
    for (Value* x : operands) part.push_back(shuffled(x, x, kLanes, [&](unsigned k) { return from + k; }));
    Value* y = f(part);
    Value* wide = shuffled(y, y, lanes, [&](unsigned k) { return k % kLanes; });
    result = result == nullptr
                 ? wide
                 : shuffled(result, wide, lanes, [&](unsigned k) { return k < from ? k : lanes + k - from; });
  }
  return result;
}

Value* by_pieces(llvm::IRBuilderBase& b, Value* x, const Pieces& f) {
  LaneMath m(b, x);
  Value* t = m.at_most(m.abs(x), 15.49 * f.width);
  Value* shifted = m.fma(t, m.c(1 / f.width), m.c(LaneMath::kRounding32));  // the last bits are the piece's number
  Value* from_centre = m.fma(b.CreateFSub(shifted, m.c(LaneMath::kRounding32)), m.c(-f.width), t);
  const auto looked_up = [&](const float (&of_pieces)[kLanes]) {
    Value* table = llvm::ConstantDataVector::get(b.getContext(), llvm::ArrayRef<float>(of_pieces));
    return in_registers(b, {m.bits(shifted)}, [&](const std::vector<Value*>& v) {
      return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {table, v[0]});
    });
  };
  Value* p = looked_up(f.coefficients.back());
  for (size_t k = f.coefficients.size() - 1; k-- > 1;) p = m.fma(p, from_centre, looked_up(f.coefficients[k]));
  Value* first =
      b.CreateSelect(b.CreateFCmpOEQ(shifted, m.c(LaneMath::kRounding32)), from_centre, looked_up(f.coefficients[0]));
  return m.copysign(m.fma(p, from_centre, first), x);
}

}  // namespace

Value* scale_by_power(llvm::IRBuilderBase& b, Value* p, Value* n) {
  return in_registers(b, {p, n}, [&](const std::vector<Value*>& v) {
    constexpr int kAllLanes = -1, kCurrentRounding = 4;
    return b.CreateIntrinsic(
        llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
        {v[0], v[1], v[0], b.getInt16(static_cast<uint16_t>(kAllLanes)), b.getInt32(kCurrentRounding)});
  });
}

Value* erf_by_pieces(llvm::IRBuilderBase& b, Value* x) { return by_pieces(b, x, {0.263671875, kErf}); }
Value* tanh_by_pieces(llvm::IRBuilderBase& b, Value* x) { return by_pieces(b, x, {0.6259765625, kTanh}); }

}  // namespace framejit::inductor
