// SPDX-License-Identifier: Apache-2.0
// The table of formulas for code that does not include them.
#include "core/rules/optim/variants.h"

namespace gsc {
namespace {

template <typename F>
constexpr Variant first_with_sweep() {
#define GSC_TAKE(enumerator, formula) \
  if (std::is_same_v<SweepOf<formula>, SweepOf<F>>) return Variant::enumerator;
  GSC_FOR_EACH_VARIANT(GSC_TAKE)
#undef GSC_TAKE
  return {};
}

template <typename F>
constexpr Traits traits_of() {
  static_assert(is_consistent<F>());
  static_assert(kNeedsNorms<F> == F::kKind.needs_norms,
                "gradscaler.h says @norms of the kinds whose formulas need norms");
  static_assert(has_room_for_own<F>(), "Raise kMaxOwn in coefficients.h to kOwnCount of this formula");
  return {F::kKind,          first_with_sweep<F>(), F::kStates,        kFlag<F>,
          kNeedsMomentum<F>, kNeedsNorms<F>,        kGradientsLast<F>, kAverages<F>};
}

constexpr Traits kTraits[] = {
#define GSC_TRAITS(enumerator, formula) traits_of<formula>(),
    GSC_FOR_EACH_VARIANT(GSC_TRAITS)
#undef GSC_TRAITS
};

}  // namespace

const Traits &traits(Variant variant) { return kTraits[static_cast<std::size_t>(variant)]; }

float rate_of(Variant variant, const Hyper &hyper, int32_t slot) {
  constexpr int64_t kLateStep = int64_t{1} << 53;
  const auto c = narrow<float>(make_coefficients(variant, hyper, hyper.lr, false, kLateStep));
  return with_variant(variant, [&](auto formula) {
    using F = SweepOf<decltype(formula)>;
    if constexpr (F::kStates > 0) return F::rate(slot, c);
    return 1.0F;
  });
}

}  // namespace gsc
