/* The kernels, found by the stem of their op; a missing kernel is a link error. */
#include "kernel/ref/table.h"

#include "kernel/ref/ref.h"

#include "base/convert.h"
#include "kernel/host.h"

static void ref_refresh(double *wide, const void *stored, weft_dtype dtype, int64_t count)
{
    enum { CHUNK = 256 };
    const int64_t e = weft_dtype_bytes(dtype);
    const char *from = stored;
    char rounded[CHUNK * 8];
    for (int64_t at = 0; at < count; at += CHUNK) {
        const int64_t n = count - at < CHUNK ? count - at : CHUNK;
        weft_convert(rounded, dtype, wide + at, WEFT_F64, n);
        for (int64_t i = 0; i < n; i++)
            if (memcmp(rounded + i * e, from + (at + i) * e, (size_t)e) != 0)
                weft_convert(wide + at + i, WEFT_F64, from + (at + i) * e, dtype, 1);
    }
}

/* clang-format off */
const weft_backend weft_backend_ref = {
    .name = "ref",
    .device = &weft_device_host,
    .refresh = ref_refresh,
    .kernel = {
#define WEFT_OWN(...)
#define WEFT_OP(ENUM, stem, ...) [WEFT_OP_##ENUM] = &ref_##stem,
#include "graph/op.def"
    },
};
/* clang-format on */
