// SPDX-License-Identifier: Apache-2.0
//
// One small model for each system whose loss-scale policy is a preset, each in the shape of that system's own rule
// rather than of the library's options, so that agreement over long random sequences means something. Sources: the
// classes named in gradscaler.h. Scales are double here; the sequences stay where float and double agree.
#ifndef GRADSCALER_TESTS_SUPPORT_POLICY_MODELS_H
#define GRADSCALER_TESTS_SUPPORT_POLICY_MODELS_H
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace gsc_test {

/// Numbers that a test may shrink so that a short sequence meets many growths.
struct ModelArguments {
  double scale;
  int64_t interval;
  int64_t hysteresis = 1;
  double tolerance = 0.0;
};

inline bool fits_float(double value) { return std::isfinite(static_cast<float>(value)); }

/// torch.amp.GradScaler; `guard`: a grown scale that is not finite is not stored. `least`/`most`: 0 is none.
struct CountingModel {
  ModelArguments a;
  bool guard = true;
  double least = 0.0;
  double most = 0.0;
  int64_t tracker = 0;
  void update(bool overflow) {
    if (overflow) {
      a.scale = std::max(a.scale * 0.5, least);
      tracker = 0;
      return;
    }
    if (++tracker < a.interval) return;
    tracker = 0;
    double grown = a.scale * 2.0;
    if (most > 0.0) grown = std::min(grown, most);
    if (!guard || fits_float(grown)) a.scale = grown;
  }
};

/// Megatron-LM and ColossalAI: the hysteresis counter is filled up only when the scale grows.
struct MegatronModel {
  ModelArguments a;
  double least = 1.0;
  int64_t tracker = 0;
  int64_t left = a.hysteresis;
  void update(bool overflow) {
    if (overflow) {
      tracker = 0;
      if (--left <= 0) a.scale = std::max(a.scale * 0.5, least);
      return;
    }
    if (++tracker == a.interval) {
      tracker = 0;
      left = a.hysteresis;
      a.scale *= 2.0;
    }
  }
};

/// DeepSpeed: growth is tested on (iteration - last overflow - 1) % window.
struct DeepSpeedModel {
  ModelArguments a;
  bool consecutive = false;
  double least = 1.0;
  int64_t iteration = 0;
  int64_t last_overflow = -1;
  int64_t left = a.hysteresis;
  void update(bool overflow) {
    if (overflow) {
      if (a.hysteresis == 1 || left == 1) {
        a.scale = std::max(a.scale / 2.0, least);
      } else {
        --left;
      }
      last_overflow = iteration;
    } else {
      if (consecutive) left = a.hysteresis;
      const int64_t stable = iteration - last_overflow - 1;
      if (stable > 0 && stable % a.interval == 0) {
        left = a.hysteresis;
        a.scale *= 2.0;
      }
    }
    ++iteration;
  }
};

/// Apex update_scale_hysteresis: consecutive overflows only; every further one backs off until a finite step.
struct ApexHysteresisModel {
  ModelArguments a;
  int64_t tracker = 0;
  int64_t left = a.hysteresis;
  void update(bool overflow) {
    if (overflow) {
      left -= 1;
      tracker = 0;
      if (left > 0) return;
      a.scale *= 0.5;
      return;
    }
    left = a.hysteresis;
    if (++tracker == a.interval) {
      if (fits_float(a.scale * 2.0)) a.scale *= 2.0;
      tracker = 0;
    }
  }
};

/// flax DynamicScale: the interval is tested before the increment.
struct FlaxModel {
  ModelArguments a;
  int64_t finite_steps = 0;
  void update(bool overflow) {
    const bool grow = finite_steps == a.interval;
    if (overflow) {
      a.scale = std::max(a.scale * 0.5, static_cast<double>(std::numeric_limits<float>::min()));
    } else if (grow) {
      a.scale = std::min(a.scale * 2.0, static_cast<double>(std::numeric_limits<float>::max()));
    }
    finite_steps = grow || overflow ? 0 : finite_steps + 1;
  }
};

/// jmp DynamicLossScale and MindSpore DynamicLossScaler: the counter runs modulo the period.
struct JmpModel {
  ModelArguments a;
  int64_t counter = 0;
  void update(bool overflow) {
    if (overflow) {
      a.scale = std::max(1.0, a.scale / 2.0);
    } else if (counter == a.interval - 1 && fits_float(a.scale * 2.0)) {
      a.scale *= 2.0;
    }
    counter = overflow ? 0 : (counter + 1) % a.interval;
  }
};

/// paddle GradScaler: backs off at every n-th consecutive overflow.
struct PaddleModel {
  ModelArguments a;
  int64_t good = 0;
  int64_t bad = 0;
  void update(bool overflow) {
    if (overflow) {
      good = 0;
      if (++bad == a.hysteresis) {
        a.scale *= 0.5;
        bad = 0;
      }
    } else {
      bad = 0;
      if (++good == a.interval) {
        a.scale *= 2.0;
        good = 0;
      }
    }
  }
};

/// fairseq DynamicLossScaler: backs off only if overflows came often enough since the last rescale.
struct FairseqModel {
  ModelArguments a;
  int64_t iteration = 0;
  int64_t last_overflow = -1;
  int64_t last_rescale = -1;
  int64_t overflows = 0;
  void update(bool overflow) {
    if (overflow) {
      const double since = static_cast<double>(iteration - last_rescale);
      last_overflow = iteration;
      ++overflows;
      if (static_cast<double>(overflows) / since >= a.tolerance) {
        a.scale /= 2.0;
        last_rescale = iteration;
        overflows = 0;
      }
    } else if ((iteration - last_overflow) % a.interval == 0) {
      a.scale *= 2.0;
      last_rescale = iteration;
    }
    ++iteration;
  }
};

}  // namespace gsc_test
#endif
