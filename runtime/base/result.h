// runtime/base/result.h — how a stage says "cannot", and how it says "our bug".
//
// Result<T> carries a value or an Error (a row of reasons.def, what and where). It is for expected failures: an op
// without a lowering, a text that does not parse. FJ_ASSERT throws InternalError, only for our own bugs. One place
// catches it, the frame driver, which logs it and runs the frame plainly.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "runtime/base/reasons.h"

namespace framejit {

struct Error {
  Reason reason;
  std::string message;  // what and where, for people
};

class InternalError : public std::logic_error {
  using std::logic_error::logic_error;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  T take() { return std::move(std::get<0>(state_)); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}
  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

[[noreturn]] void throw_internal_error(const char* file, int line, const char* condition, const std::string& detail);

}  // namespace framejit

#define FJ_CONCAT_(a, b) a##b
#define FJ_CONCAT(a, b) FJ_CONCAT_(a, b)

// FJ_TRY(auto x, expression): x takes the value, or the enclosing function returns the error.
#define FJ_TRY(declaration, expression)                            \
  auto FJ_CONCAT(fj_result_, __LINE__) = (expression);             \
  if (!FJ_CONCAT(fj_result_, __LINE__).ok())                       \
    return FJ_CONCAT(fj_result_, __LINE__).error();                \
  declaration = FJ_CONCAT(fj_result_, __LINE__).take()

// FJ_TRY_VOID(expression): returns the error of a Result<void>.
#define FJ_TRY_VOID(expression)                                    \
  do {                                                             \
    auto fj_result = (expression);                                 \
    if (!fj_result.ok()) return fj_result.error();                 \
  } while (false)

// FJ_ASSERT(condition, detail): an invariant of ours; throws InternalError if it does not hold.
#define FJ_ASSERT(condition, detail)                                              \
  do {                                                                            \
    if (!(condition)) [[unlikely]]                                                \
      ::framejit::throw_internal_error(__FILE__, __LINE__, #condition, (detail)); \
  } while (false)
