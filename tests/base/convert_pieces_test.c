/* Conversions of many elements are compared with conversions of one element at a time. */
#include "base/convert.h"

#include <criterion/criterion.h>
#include <string.h>

enum { COUNT = 700 }; /* more than two of the blocks in which elements are converted */

Test(convert, many_elements_are_converted_like_one)
{
    static const weft_dtype types[] = {WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F8E4M3,
                                       WEFT_I32, WEFT_I64,  WEFT_U8,  WEFT_F64};
    static double source[COUNT];
    static char from[COUNT * 8], to[COUNT * 8], one[8];
    for (int i = 0; i < COUNT; i++)
        source[i] = i % 120;
    for (int a = 0; a < 8; a++) {
        const int64_t in = weft_dtype_bytes(types[a]);
        for (int i = 0; i < COUNT; i++)
            weft_convert(from + i * in, types[a], &source[i], WEFT_F64, 1);
        for (int b = 0; b < 8; b++) {
            const int64_t out = weft_dtype_bytes(types[b]);
            weft_convert(to, types[b], from, types[a], COUNT);
            for (int i = 0; i < COUNT; i++) {
                weft_convert(one, types[b], from + i * in, types[a], 1);
                cr_assert(!memcmp(one, to + i * out, (size_t)out), "%d to %d, element %d", a, b, i);
            }
        }
    }
}
