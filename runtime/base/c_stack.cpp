// runtime/base/c_stack.cpp — the thread's stack as pthreads report it; if they do not, it counts as unlimited.
#include "runtime/base/c_stack.h"

#include <pthread.h>

#include <cstddef>

namespace framejit {
namespace {

constexpr size_t kLittle = 128 << 10, kSmallStack = 4 << 20;

struct Limits {
  const char *low = nullptr, *over = nullptr;

  Limits() {
    pthread_attr_t attributes;
    void* start = nullptr;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    pthread_attr_getstack(&attributes, &start, &size);
    pthread_attr_destroy(&attributes);
    low = static_cast<const char*>(start) + (size > kSmallStack ? size / 4 : size / 2);
    over = static_cast<const char*>(start) + (size > 4 * kLittle ? kLittle : size / 4);
  }
};

const Limits& limits() {
  thread_local const Limits found;
  return found;
}

}  // namespace

bool c_stack_is_low() {
  const char here = 0;
  return &here < limits().low;
}

bool c_stack_is_over() {
  const char here = 0;
  return &here < limits().over;
}

}  // namespace framejit
