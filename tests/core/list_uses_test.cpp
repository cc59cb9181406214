// SPDX-License-Identifier: Apache-2.0
//
// The chain of a list's uses: a use leaves it without a walk from its beginning, however many optimizers share the list.
#include <gtest/gtest.h>

#include <vector>

#include "core/objects/tensor_list.h"

namespace gsc {
namespace {

struct World {
  Ref<Context> context = Context::create(GSC_CONTEXT_OPTIONS_INIT);
  Ref<TensorList> list = TensorList::create(context, nullptr, 0, nullptr);
  std::vector<ListUse> uses = std::vector<ListUse>(5);
  World() {
    for (ListUse &use : uses) {
      use.list = list.get();
      list->add_use(use);
    }
  }
  /// From the newest on.
  std::vector<ListUse *> chain() {
    std::vector<ListUse *> result;
    for (ListUse *use = list->first_use(); use != nullptr; use = use->next) result.push_back(use);
    return result;
  }
};

TEST(ListUses, LeaveInAnyOrder) {
  World w;
  ListUse *const u = w.uses.data();
  EXPECT_EQ(w.chain(), (std::vector<ListUse *>{u + 4, u + 3, u + 2, u + 1, u}));
  w.list->remove_use(u[2]);
  EXPECT_EQ(w.chain(), (std::vector<ListUse *>{u + 4, u + 3, u + 1, u}));
  w.list->remove_use(u[0]);
  EXPECT_EQ(w.chain(), (std::vector<ListUse *>{u + 4, u + 3, u + 1}));
  w.list->remove_use(u[4]);
  EXPECT_EQ(w.chain(), (std::vector<ListUse *>{u + 3, u + 1}));
  w.list->add_use(u[0]);
  EXPECT_EQ(w.chain(), (std::vector<ListUse *>{u, u + 3, u + 1}));
  for (const int i : {1, 0, 3}) w.list->remove_use(u[i]);
  EXPECT_TRUE(w.chain().empty());
}

/// With the chain cut behind its newest use, a walk would not arrive at the oldest.
TEST(ListUses, LeaveWithoutAWalk) {
  World w;
  ListUse *const u = w.uses.data();
  u[4].next = nullptr;
  w.list->remove_use(u[0]);
  EXPECT_EQ(u[1].next, nullptr);
  w.list->remove_use(u[2]);
  EXPECT_EQ(u[3].next, u + 1);
}

}  // namespace
}  // namespace gsc
