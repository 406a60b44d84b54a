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

Test(utf8, codes_are_appended)
{
    const uint32_t code[] = {0x41, 0x7f, 0x80, 0x7ff, 0x800, 0xffff, 0x10000, 0x10ffff};
    weft_buf text = {0};
    for (int i = 0; i < 8; i++)
        weft_utf8_append(&text, code[i]);
    cr_expect_str_eq(text.data, "A\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80"
                                "\xf4\x8f\xbf\xbf");
    weft_buf_free(&text);
}

Test(utf8, character_references)
{
    static const struct {
        const char *text;
        int64_t bytes; /* of the text that are read */
        int64_t used;
        uint32_t code;
    } rows[] = {
        {"#65;", 4, 3, 65},
        {"#x1F600;", 8, 7, 0x1f600},
        {"#Xfc ", 5, 4, 0xfc},
        {"#12", 2, 2, 1}, /* the text ends before the 2 */
        {"#6a;", 4, 2, 6},
        {"#1114111;", 9, 8, 0x10ffff},
        {"#1114112;", 9, 8, 0x110000},
        {"#18446744073709551681;", 22, 21, 0x110000}, /* 2^64 + 65 */
        {"#x", 2, 0, 7},
        {"#", 1, 0, 7},
        {"#-1;", 4, 0, 7},
        {"# 65;", 5, 0, 7},
        {"amp;", 4, 0, 7},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t code = 7;
        cr_expect_eq(weft_character_reference(rows[i].text, rows[i].bytes, &code), rows[i].used,
                     "%s", rows[i].text);
        cr_expect_eq(code, rows[i].code, "%s", rows[i].text);
    }
}
