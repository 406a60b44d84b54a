/* Well-formed byte sequences of UTF-8 (Unicode, table 3-7), at the borders of each row. */
#include "base/utf8.h"

#include <criterion/criterion.h>

Test(utf8, borders_of_well_formed_sequences)
{
    static const struct {
        const char *text;
        int length;
    } rows[] = {
        {"", 0},
        {"\x7f", 1},
        {"\x80", 0},
        {"\xc1\xbf", 0},
        {"\xc2\x80", 2},
        {"\xdf\xbf", 2},
        {"\xe0\x9f\xbf", 0},
        {"\xe0\xa0\x80", 3},
        {"\xec\xbf\xbf", 3},
        {"\xed\x9f\xbf", 3},
        {"\xed\xa0\x80", 0},
        {"\xee\x80\x80", 3},
        {"\xef\xbf\xbf", 3},
        {"\xf0\x8f\xbf\xbf", 0},
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\xf4\x90\x80\x80", 0},
        {"\xf5\x80\x80\x80", 0},
        {"\xe2\x82", 0},
        {"\xc3(", 0},
        {"\xf0\x90\x80", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(weft_utf8_length(rows[i].text), rows[i].length, "row %zu", i);
}
