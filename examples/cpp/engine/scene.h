// SPDX-License-Identifier: Apache-2.0
//
// The rest of a frame: particles in wind, on the job system that the library uses too.
#pragma once

#include <cmath>
#include <vector>

#include "job_system.h"

namespace engine {

class Scene {
 public:
  Scene() : particles_(size_t{kJobs} * kOfAJob) {
    for (size_t i = 0; i < particles_.size(); ++i) particles_[i].position[i % 3] = std::sin(static_cast<float>(i));
  }
  void update(JobSystem &jobs) {
    jobs.parallel_for(
        kJobs,
        [](void *self, int32_t job) {
          Particle *first = static_cast<Scene *>(self)->particles_.data() + size_t(job) * kOfAJob;
          for (Particle *p = first; p != first + kOfAJob; ++p) {
            for (int i = 0; i < 3; ++i) {
              p->speed[i] += kFrame * (p->position[(i + 1) % 3] - 2.0F * p->position[i]);
              p->position[i] += kFrame * p->speed[i];
            }
          }
        },
        this);
  }

 private:
  static constexpr int kJobs = 32, kOfAJob = 1000;
  static constexpr float kFrame = 1.0F / 60.0F;
  struct Particle {
    float position[3] = {}, speed[3] = {};
  };
  std::vector<Particle> particles_;
};

}  // namespace engine
