#include <gmock/gmock.h>

#include <fstream>

#include "raggrad/testing/golden.h"

namespace raggrad::testing {
namespace {

using ::testing::StartsWith;

std::string Line(const std::string& input) {
  return R"({"name":"a","op":"X","attrs":{"k":1,"T":"half"},"inputs":{"x":)" + input + R"(},"outputs":{},"note":"n"})";
}

class GoldenReader : public ::testing::Test {
 protected:
  // One file per test: ctest may run them at the same time.
  const std::string path_ =
      ::testing::TempDir() + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl";

  std::vector<GoldenCase> Read(const std::vector<std::string>& lines) const {
    std::ofstream stream(path_);
    for (const std::string& line : lines) stream << line << "\n";
    stream.close();
    return ReadGoldens(path_);
  }
  GoldenCase ReadInput(const std::string& input) const { return std::move(Read({Line(input)})[0]); }

  // The error of a file with these lines, without its path; "" if there is none.
  std::string Error(const std::vector<std::string>& lines) const {
    try {
      (void)Read(lines);
      return "";
    } catch (const GoldenError& error) {
      EXPECT_THAT(error.what(), StartsWith(path_ + ":"));
      return std::string(error.what()).substr(path_.size());
    }
  }
};

TEST_F(GoldenReader, ReadsNumbers) {
  const GoldenCase golden = ReadInput(R"({"dtype":"half","shape":[2,1],"data":"AQACgA=="})");
  EXPECT_EQ(golden.place, path_ + ":1: a");
  EXPECT_EQ(golden.op, "X");
  EXPECT_EQ(golden.note, "n");
  EXPECT_EQ(golden.code, Code::kOk);
  EXPECT_EQ(golden.IntAttr("k"), 1);
  EXPECT_THROW((void)golden.BoolAttr("k"), GoldenError);
  EXPECT_THROW((void)golden.IntAttr("T"), GoldenError);
  EXPECT_THROW((void)golden.IntAttr("missing"), GoldenError);
  EXPECT_EQ(golden.DTypeAttr("T"), DType::kHalf);
  const TensorView& x = golden.Input("x");
  EXPECT_EQ(x.dtype, DType::kHalf);
  EXPECT_EQ(x.shape, (Shape{2, 1}));
  EXPECT_EQ(x.As<Half>()[0].bits, 0x0001);
  EXPECT_EQ(x.As<Half>()[1].bits, 0x8002);
}

TEST_F(GoldenReader, ReadsStringsWithAnyBytes) {
  const GoldenCase golden = ReadInput(R"({"dtype":"string","shape":[3],"data":["aGk=","","AAD/"]})");
  const String* const x = golden.Input("x").As<String>();
  EXPECT_EQ(std::string(x[0].data, x[0].size), "hi");
  EXPECT_EQ(x[1].size, 0U);
  EXPECT_EQ(std::string(x[2].data, x[2].size), std::string("\0\0\xff", 3));
}

TEST_F(GoldenReader, ReadsHugeShapesWithoutElements) {
  const GoldenCase golden = ReadInput(R"({"dtype":"float32","shape":[1099511627776,1099511627776,0],"data":""})");
  EXPECT_EQ(golden.Input("x").shape, (Shape{int64_t{1} << 40, int64_t{1} << 40, 0}));
}

TEST_F(GoldenReader, ReadsVariants) {
  const GoldenCase golden =
      ReadInput(R"({"dtype":"variant","shape":[2,1],"elements":[null,{"nested_splits":[{"dtype":"int32","shape":[1],)"
                R"("data":"AAAAAA=="}],"values":{"dtype":"int4","shape":[1],"data":"Bw=="}}]})");
  const VariantArrayView& x = golden.VariantInput("x");
  EXPECT_EQ(x.shape, (Shape{2, 1}));
  ASSERT_EQ(x.elements.size(), 2U);
  EXPECT_FALSE(x.elements[0]);
  ASSERT_TRUE(x.elements[1]);
  ASSERT_EQ(x.elements[1]->nested_splits.size(), 1U);
  EXPECT_EQ(x.elements[1]->nested_splits[0].dtype, DType::kInt32);
  EXPECT_EQ(x.elements[1]->values.dtype, DType::kInt4);
  EXPECT_THROW((void)golden.Input("x"), GoldenError);
}

TEST_F(GoldenReader, ReadsLists) {
  const GoldenCase golden = ReadInput(R"([{"dtype":"bool","shape":[],"data":"AQ=="}])");
  ASSERT_EQ(golden.ListInput("x").size(), 1U);
  EXPECT_EQ(golden.ListInput("x")[0].dtype, DType::kBool);
  EXPECT_THROW((void)golden.Input("x"), GoldenError);
}

TEST_F(GoldenReader, TellsListsAndVariantsApart) {
  const auto tensor = [](const std::string& byte) {
    return R"({"dtype":"int8","shape":[1],"data":")" + byte + R"("})";
  };
  const auto element = [&](const std::string& split, const std::string& value) {
    return R"({"nested_splits":[)" + tensor(split) + R"(],"values":)" + tensor(value) + "}";
  };
  const auto variant = [](const std::string& shape, const std::string& elements) {
    return R"({"dtype":"variant","shape":)" + shape + R"(,"elements":[)" + elements + "]}";
  };
  const auto read = [&](const std::string& input) { return std::move(ReadInput(input).inputs.at("x")); };
  std::vector<Tensor> list;
  list.push_back(TensorOf(std::vector<int8_t>{1}, Shape{1}));
  const GoldenView one_tensor = std::span<const Tensor>(list);
  EXPECT_EQ(Difference(one_tensor, read("[" + tensor("AQ==") + "]")), "");
  EXPECT_EQ(Difference(one_tensor, read("[]")), "1 tensors, expected 0");
  EXPECT_EQ(Difference(one_tensor, read("[" + tensor("Ag==") + "]")),
            "tensor 0: element 0 has the bytes 01, expected 02");
  EXPECT_THAT(Difference(one_tensor, read(tensor("AQ=="))), StartsWith("is of another kind"));

  const GoldenValue got = read(variant("[2]", "null," + element("AQ==", "Ag==")));
  const auto difference = [&](const std::string& want) {
    return Difference(std::get<OwnedVariantArray>(got).view(), read(want));
  };
  EXPECT_EQ(difference(variant("[2]", "null," + element("AQ==", "Ag=="))), "");
  EXPECT_EQ(difference(variant("[2,1]", "null,null")), "the shape of the variant array differs");
  EXPECT_EQ(difference(variant("[2]", "null,null")), "element 1: is there, expected a missing one");
  EXPECT_EQ(difference(variant("[2]", element("AQ==", "Ag==") + ",null")), "element 0: is missing");
  EXPECT_EQ(difference(variant("[2]", "null," + element("Ag==", "Ag=="))),
            "element 1: split 0: element 0 has the bytes 01, expected 02");
  EXPECT_EQ(difference(variant("[2]", "null," + element("AQ==", "AQ=="))),
            "element 1: element 0 has the bytes 02, expected 01");
}

TEST_F(GoldenReader, NamesTheBrokenLine) {
  const std::string good = Line(R"({"dtype":"int8","shape":[1],"data":"AQ=="})");
  EXPECT_EQ(Error({good}), "");
  EXPECT_THAT(Error({good, R"({"name": )"}), StartsWith(":2: "));
  EXPECT_THAT(Error({good, good, "{}"}), StartsWith(":3: "));
  EXPECT_THAT(Error({good, "[]"}), StartsWith(":2: "));
  const auto error = [&](const std::string& tensor) { return Error({Line(tensor)}); };
  EXPECT_EQ(error(R"({"dtype":"int9","shape":[1],"data":"AQ=="})"), ":1: no such dtype: int9");
  EXPECT_EQ(error(R"({"dtype":"int8","shape":[2],"data":"AQ=="})"), ":1: data of size 1, the shape needs 2");
  EXPECT_EQ(error(R"({"dtype":"int8","shape":[-1],"data":""})"), ":1: a negative dimension");
  EXPECT_EQ(error(R"({"dtype":"int8","shape":[1],"data":"A*=="})"), ":1: '*' is not in the base64 alphabet");
  EXPECT_EQ(error(R"({"dtype":"int8","shape":[1],"data":"AQ="})"), ":1: base64 of a length that is no multiple of 4");
  EXPECT_EQ(error(R"({"dtype":"variant","shape":[2],"elements":[null]})"),
            ":1: elements do not fill the variant's shape");
}

TEST_F(GoldenReader, RefusesAFileThatIsNotThere) {
  EXPECT_THROW((void)ReadGoldens(path_ + ".missing"), GoldenError);
  EXPECT_TRUE(GoldenFiles(path_ + ".missing").empty());
}

}  // namespace
}  // namespace raggrad::testing
