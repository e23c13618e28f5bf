// Cases: one definition per operation that serves as test, gradient check and benchmark on every
// device.
//
// A Problem is one call of an operation: its arguments by name, made on the host; how to call it on
// views of them; and the expected result, computed plainly in double. cases/run.h copies the
// arguments to a device, calls the operation on its stream, copies them back and compares; a case
// does not depend on the device.
//
// To add an operation: write cases/<stem>.cc with a function `std::vector<OpCase> <stem>_cases()`,
// declare it in cases/registry.h and add it to the list in cases/registry.cc. Follow
// cases/swiglu.cc, the shortest one. Arguments that are not tensors (page tables, visit lists) are
// given as integer tensors; `run` builds the view structs from them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "device/device.h"
#include "tensor/view.h"

namespace longstride::ops {

// A tensor in host memory, in its own dtype.
struct HostTensor {
  HostTensor() = default;
  HostTensor(DType t, Shape s);
  std::int64_t elements() const { return shape.elements(); }
  double get(std::int64_t i) const;
  void set(std::int64_t i, double x);  // rounds to the dtype

  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;
};

enum class Role : std::uint8_t {
  kInput,    // must be the same bytes after the call
  kOutput,   // written (=): filled with NaN before the call
  kUpdate,   // added to (+=), or only partly written
  kInPlace,  // read, then overwritten
  kScratch,  // filled with NaN before the call; not checked afterwards
};

struct Argument {
  std::string name;
  Role role = Role::kInput;
  HostTensor tensor;  // no elements for scratch
  // An output may differ from the reference by this times the reference's largest magnitude; 0: not
  // at all.
  double tolerance = 0;
  // The size of the terms, if the true result vanishes because its terms cancel.
  double magnitude = 0;
  std::function<std::int64_t(const Stream&)> scratch_elements;  // of scratch: what the device needs
};

// The arguments' values in double, by name, for references.
using Values = std::map<std::string, std::vector<double>>;

// The arguments as views on the device, by name. For a name that the problem does not have, the
// view is absent.
class Bound {
 public:
  void add(const std::string& name, View view) { views_[name] = view; }
  View operator()(const std::string& name) const;

 private:
  std::map<std::string, View> views_;
};

struct Problem {
  std::vector<Argument> arguments;
  std::function<void(Stream&, const Bound&)> run;
  // Sets every output and update to its expected value after the call. Written for clarity.
  std::function<void(Values&)> reference;

  // A backward operation also gives the function it is the gradient of, `loss` of the inputs in
  // double, and pairs (input, output that holds d loss / d input, added to its previous value if
  // its role is kUpdate). An input that only `loss` reads is not passed to the operation.
  std::function<double(const Values&)> loss;
  std::vector<std::pair<std::string, std::string>> gradients;

  // Updates that a call may leave out without changing a bit of the others.
  std::vector<std::string> optional = {};

  // Whether a second call gives the same bits.
  bool repeats = true;

  // Work of a call, for benchmarks: GF/s where flops > 0, else GB/s.
  double flops = 0;
  double bytes = 0;

  // Helpers to fill `arguments`. Values are uniform in [-magnitude, magnitude), different for each
  // name. A reference holds until the next argument is added.
  HostTensor& input(const std::string& name, DType t, Shape s, double magnitude = 1);
  HostTensor& update(const std::string& name, DType t, Shape s, double tolerance = kTolerance);
  HostTensor& in_place(const std::string& name, DType t, Shape s, double magnitude = 1);
  void output(const std::string& name, DType t, Shape s, double tolerance = kTolerance);
  // F32; 0 elements: absent.
  void scratch(const std::string& name, std::function<std::int64_t(const Stream&)> elements);

  static constexpr double kTolerance = 4e-6;      // fp32 arithmetic
  static constexpr double kTolerance16 = 0x1p-7;  // bf16 arithmetic
};

// The same problem with the named arguments in BF16, for devices that compute in it. Outputs may
// differ by `tolerance` (0: not at all); there are no gradient checks, because finite differences
// need more digits.
Problem in_bf16(Problem problem, const std::vector<std::string>& names,
                double tolerance = Problem::kTolerance16);

// A problem that is made on demand.
struct Variant {
  std::string label;  // "R=512 I=512 O=1536 BF16"
  std::function<Problem()> make;
};

struct OpCase {
  std::string name;                 // the operation: "linear_forward"
  std::vector<Variant> tests;       // small, odd shapes; every dtype and option
  std::vector<Variant> benchmarks;  // shapes of real models
  // The same in BF16 arithmetic, for devices that compute in it.
  std::vector<Variant> tests16 = {}, benchmarks16 = {};
};

}  // namespace longstride::ops
