// SPDX-License-Identifier: Apache-2.0
// Shared by all kernels: the sums of a workgroup, and which workgroup is the last. A workgroup has 32, 64, 128 or 256
// invocations, of which 32 make a row of groups (core/rules/reduction.h). All of them call every function with a
// barrier.
layout(local_size_x = 32, local_size_x_id = 0) in;
layout(constant_id = 1) const int kSpecial = 0;
layout(push_constant) uniform Push { uint64_t args; } push;

const int kLanes = 32;
const int kMostThreads = 256;
const int kThreads = int(gl_WorkGroupSize.x);
#define THREAD int(gl_LocalInvocationID.x)
#define WORKGROUP int64_t(gl_WorkGroupID.x)
#define WORKGROUPS int64_t(gl_NumWorkGroups.x)

/// Written by one workgroup and read by another of the same dispatch.
layout(buffer_reference, std430, buffer_reference_align = 8) coherent buffer Ref_shared { uint64_t v; };
uint64_t load_coherent(uint64_t p) { return Ref_shared(p).v; }
void store_coherent(uint64_t p, uint64_t x) { Ref_shared(p).v = x; }

/// Adds to a number of 64 bits; devices need not have atomic operations on such.
void add_to(uint64_t p, uint x) {
  const uint old = atomicAdd(Ref_u32(p).v, x);
  if (old + x < old) atomicAdd(Ref_u32(p + 4ul).v, 1u);
}

shared bool shared_is_last;
/// Whether this workgroup is the last of the dispatch to get here; what the others have stored with store_coherent is
/// visible to it. The ticket is 0 again afterwards, so that a command buffer can be submitted again.
bool is_last_workgroup(uint64_t ticket) {
  memoryBarrierBuffer();
  barrier();
  if (THREAD == 0) {
    memoryBarrierBuffer();
    const uint workgroups = gl_NumWorkGroups.x;
    shared_is_last = atomicAdd(Ref_u32(ticket).v, 1u) == workgroups - 1u;
    if (shared_is_last) atomicExchange(Ref_u32(ticket).v, 0u);
    memoryBarrierBuffer();
  }
  barrier();
  memoryBarrierBuffer();
  return shared_is_last;
}
