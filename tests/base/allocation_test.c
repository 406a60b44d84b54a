#include "base/memory.h"

#include <criterion/criterion.h>

static weft_status make_pair(int64_t **first, double **second, int64_t count)
{
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(*first, count, "%" PRId64 " numbers", count));
    WEFT_GO(WEFT_NEW(*second, count, "the weights"));
out:
    if (status != WEFT_OK) {
        weft_free(*first);
        *first = NULL;
    }
    return status;
}

Test(allocation, new_elements_are_zeroed)
{
    int64_t *first = NULL;
    double *second = NULL;
    cr_assert_eq(make_pair(&first, &second, 100), WEFT_OK);
    for (int i = 0; i < 100; i++)
        cr_assert(first[i] == 0 && second[i] == 0);
    weft_free(first);
    weft_free(second);
}

Test(allocation, a_failure_names_the_object)
{
    static const char *const text[] = {"out of memory for 7 numbers",
                                       "out of memory for the weights"};
    for (int n = 0; n < 2; n++) {
        int64_t *first = NULL;
        double *second = NULL;
        weft_alloc_fail_at(n + 1);
        cr_assert_eq(make_pair(&first, &second, 7), WEFT_E_MEMORY);
        cr_assert_eq(weft_error_class(), WEFT_MSG_OUT_OF_MEMORY);
        cr_assert_str_eq(weft_error_text(), text[n]);
        cr_assert(!first && !second);
    }
}

/* A product beyond int64_t fails like an allocation: it is counted, and the pointer is NULL. */
Test(allocation, products_do_not_wrap)
{
    static const int64_t too_many[] = {INT64_MAX / 8 + 1, INT64_MAX, INT64_MIN, -1};
    weft_arena *arena = weft_arena_create();
    cr_assert(arena);
    for (int i = 0; i < 4; i++) {
        int64_t here, *list = &here, *other = &here;
        const int64_t before = weft_alloc_count();
        cr_assert_eq(WEFT_NEW(list, too_many[i], "a list"), WEFT_E_MEMORY);
        cr_assert_eq(weft_alloc_count(), before + 1);
        cr_assert_eq(WEFT_ARENA_NEW(arena, other, too_many[i], "a list"), WEFT_E_MEMORY);
        cr_assert(!list && !other);
    }
    weft_arena_free(arena);
}

Test(allocation, text_is_evaluated_only_on_failure)
{
    int asked = 0;
    const char *volatile first = "a", *volatile second = "b";
    cr_assert_eq(WEFT_ALLOCATED(first && second, "%d", ++asked), WEFT_OK);
    cr_assert_eq(asked, 0);
    second = NULL;
    cr_assert_eq(WEFT_ALLOCATED(first && second, "%d", ++asked), WEFT_E_MEMORY);
    cr_assert_eq(asked, 1);
}
