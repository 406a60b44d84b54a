/* Elements that are not finite are found in every type, at every index and alignment. */
#include "base/convert.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { COUNT = 1000 };

static void expect_found(weft_dtype dtype, float bad)
{
    static char data[1 + 8 * COUNT];
    float values[COUNT];
    const int64_t places[] = {0, 1, 255, 256, 511, COUNT - 1};
    for (int offset = 0; offset < 2; offset++) {
        for (int i = 0; i < COUNT; i++)
            values[i] = (float)(i % 7 - 3);
        weft_convert(data + offset, dtype, values, WEFT_F32, COUNT);
        cr_expect_eq(weft_first_not_finite(data + offset, dtype, COUNT), -1);
        for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
            char kept[8], *at = data + offset + places[k] * weft_dtype_bytes(dtype);
            memcpy(kept, at, (size_t)weft_dtype_bytes(dtype));
            weft_convert(at, dtype, &bad, WEFT_F32, 1);
            cr_expect_eq(weft_first_not_finite(data + offset, dtype, COUNT), places[k],
                         "%s %g at %d", weft_dtype_name(dtype), (double)bad, (int)places[k]);
            memcpy(at, kept, (size_t)weft_dtype_bytes(dtype));
        }
    }
}

Test(convert, finds_what_is_not_finite)
{
    const weft_dtype wide[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        expect_found(wide[i], NAN);
        expect_found(wide[i], INFINITY);
        expect_found(wide[i], -INFINITY);
    }
    expect_found(WEFT_F8E4M3, NAN);
}

Test(convert, integers_and_large_numbers_are_finite)
{
    const int32_t ones[2] = {-1, 0x7f800000};
    const float large[2] = {3e38F, -1e-45F};
    cr_expect_eq(weft_first_not_finite(ones, WEFT_I32, 2), -1);
    cr_expect_eq(weft_first_not_finite(large, WEFT_F32, 2), -1);
    cr_expect_eq(weft_first_not_finite(large, WEFT_F32, 0), -1);
}
