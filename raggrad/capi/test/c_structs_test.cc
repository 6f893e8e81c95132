// Programs that were compiled against an older header of the same ABI version: their structs are shorter.
#include "raggrad/capi/c_structs.h"

#include <gmock/gmock.h>

#include "raggrad/testing/status_matchers.h"

namespace raggrad::capi {

struct Grown {
  size_t struct_size;
  int64_t old_member;
  int64_t new_member;
};
template <>
inline constexpr size_t kFirstSize<Grown> = offsetof(Grown, new_member);

namespace {

using ::raggrad::testing::StatusIs;
using ::testing::HasSubstr;

TEST(CStructsTest, AnOlderProgramSetsOnlyTheMembersItKnows) {
  const Grown given{offsetof(Grown, new_member), 1, 2};
  Grown known{0, 0, 7};
  EXPECT_TRUE(ReadStruct("f", {"x"}, &given, known).ok());
  EXPECT_EQ(known.old_member, 1);
  EXPECT_EQ(known.new_member, 7);
}

TEST(CStructsTest, AnOlderProgramGetsOnlyTheMembersItKnows) {
  Grown given{offsetof(Grown, new_member), 0, 7};
  EXPECT_TRUE(WriteStruct("f", {"x"}, &given, Grown{0, 1, 2}).ok());
  EXPECT_EQ(given.struct_size, offsetof(Grown, new_member));
  EXPECT_EQ(given.old_member, 1);
  EXPECT_EQ(given.new_member, 7);
}

TEST(CStructsTest, NoProgramHasAShorterStruct) {
  Grown given{offsetof(Grown, new_member) - 1, 0, 0};
  EXPECT_THAT(WriteStruct("f", {"x"}, &given, Grown{0, 1, 2}),
              StatusIs(Code::kInvalidArgument, HasSubstr("[x.struct_size: expected 16 to 4096 bytes, got 15]")));
  EXPECT_EQ(given.old_member, 0);
}

}  // namespace
}  // namespace raggrad::capi
