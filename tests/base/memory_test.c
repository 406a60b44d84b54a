/* Formatted sizes in bytes. */
#include "base/memory.h"

#include <criterion/criterion.h>

Test(memory, one_thing_has_no_plural)
{
    cr_expect_str_eq(weft_plural(1), "");
    cr_expect_str_eq(weft_plural(0), "s");
    cr_expect_str_eq(weft_plural(2), "s");
    cr_expect_str_eq(weft_plural(-1), "s");
}
