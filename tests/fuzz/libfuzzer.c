/* libFuzzer's entry, for one target a program: make fuzz compiles it with -DFUZZ_TARGET=fuzz_tar
 * and so on. */
#include "fuzz.h"

#ifdef FUZZ_TARGET
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return FUZZ_TARGET(data, size);
}
#endif
