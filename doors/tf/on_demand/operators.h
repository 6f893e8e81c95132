// The operators of this library, and how many calls it answered.
#pragma once

namespace raggrad_tf {

void CountCall(const char* op);

}  // namespace raggrad_tf
