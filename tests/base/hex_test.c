#include "base/hex.h"

#include <criterion/criterion.h>

Test(hex, numbers_have_16_digits)
{
    const uint64_t number[] = {0, 1, 0x0123456789abcdef, UINT64_MAX};
    const char *const digits[] = {"0000000000000000", "0000000000000001", "0123456789abcdef",
                                  "ffffffffffffffff"};
    for (int i = 0; i < 4; i++) {
        char text[WEFT_HEX_BYTES];
        uint64_t back = 7;
        cr_expect_str_eq(weft_hex_print(number[i], text), digits[i]);
        cr_expect(weft_hex_parse(text, &back));
        cr_expect_eq(back, number[i]);
    }
}

Test(hex, any_other_text_is_refused)
{
    const char *const text[] = {NULL,
                                "",
                                "1",
                                "0123456789abcde",
                                "0123456789abcdef0",
                                "0123456789ABCDEF",
                                "0x23456789abcdef",
                                " 123456789abcdef",
                                "-123456789abcdef",
                                "0123456789abcdeg"};
    for (int i = 0; i < (int)(sizeof text / sizeof *text); i++) {
        uint64_t number = 7;
        cr_expect_not(weft_hex_parse(text[i], &number), "%s", text[i]);
        cr_expect_eq(number, 7, "%s", text[i]);
    }
}

Test(hex, bytes_have_two_digits_each)
{
    const unsigned char bytes[] = {0x00, 0x0f, 0xa0, 0xff};
    unsigned char back[4] = {0};
    char text[9];
    weft_hex_write(bytes, 4, text);
    cr_expect_str_eq(text, "000fa0ff");
    cr_expect(weft_hex_read(text, 4, back));
    cr_expect_arr_eq(back, bytes, 4);
    cr_expect(weft_hex_read("000fa0ff\"", 4, back), "the text continues with another character");
}

Test(hex, bytes_of_other_text_are_not_read)
{
    const char *const text[] = {"", "000fa0f", "000fa0ff0", "000FA0FF", "000fa0g0"};
    for (int i = 0; i < (int)(sizeof text / sizeof *text); i++) {
        unsigned char bytes[4] = {7, 7, 7, 7};
        cr_expect_not(weft_hex_read(text[i], 4, bytes), "%s", text[i]);
        cr_expect_eq(bytes[0] + bytes[1] + bytes[2] + bytes[3], 28, "%s", text[i]);
        cr_expect_not(weft_hex_starts(text[i], 8), "%s", text[i]);
    }
    cr_expect(weft_hex_starts("000fa0ff.part", 8));
}

Test(hex, digits_of_either_case)
{
    const char digits[] = "0123456789abcdef", capitals[] = "0123456789ABCDEF";
    for (int i = 0; i < 16; i++) {
        cr_expect_eq(weft_hex_digit(digits[i]), i);
        cr_expect_eq(weft_hex_digit(capitals[i]), i);
    }
    for (const char *p = "/:@G`g\xb0\x01\x10\x11"; *p; p++) /* next to the digits, and bits apart */
        cr_expect_eq(weft_hex_digit(*p), -1, "%d", *p);
    cr_expect_eq(weft_hex_digit(0), -1);
}
