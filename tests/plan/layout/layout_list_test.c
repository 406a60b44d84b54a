/* Enumeration of degrees, order of layouts and reasons why they lost. */
#include "base/config.h"
#include "plan/layout/layout_list.h"
#include "plan/layout/layout_products.h"

#include <criterion/criterion.h>
#include <string.h>

typedef struct seen {
    int64_t degree[64][3];
    int count;
} seen;

static weft_status_code note(void *user, const int64_t *degree)
{
    seen *s = user;
    memcpy(s->degree[s->count++], degree, sizeof s->degree[0]);
    return s->count == 64 ? WEFT_E_ARG : WEFT_OK;
}

Test(products, every_product_once_within_the_limits)
{
    static const int64_t any[3] = {0}, limited[3] = {2, 0, 3};
    seen all = {0}, some = {0};
    int expected = 0, within = 0;
    cr_assert_eq(weft_layout_products(12, any, 3, note, &all), WEFT_OK);
    cr_assert_eq(weft_layout_products(12, limited, 3, note, &some), WEFT_OK);
    for (int a = 1; a <= 12; a++)
        for (int b = 1; b <= 12; b++)
            for (int c = 1; c <= 12; c++)
                if (a * b * c == 12) {
                    expected++;
                    within += a <= 2 && c <= 3;
                }
    cr_expect_eq(all.count, expected);
    cr_expect_eq(some.count, within);
    for (int i = 0; i < all.count; i++) {
        const int64_t *d = all.degree[i];
        cr_expect_eq(d[0] * d[1] * d[2], 12);
        for (int k = 0; k < i; k++)
            cr_expect(memcmp(d, all.degree[k], sizeof all.degree[0]), "a product twice");
        cr_expect(i == 0 || d[0] <= all.degree[i - 1][0], "larger first degrees come first");
    }
}

Test(products, an_error_of_the_visitor_ends_the_enumeration)
{
    static const int64_t any[3] = {0};
    seen s = {.count = 63};
    cr_expect_eq(weft_layout_products(12, any, 3, note, &s), WEFT_E_ARG);
    cr_expect_eq(s.count, 64);
}

static void add(weft_layout_list *list, const char *name, const char *why, bool legal,
                double seconds, double bytes, double first, double second)
{
    const double cause[2] = {first, second};
    const weft_layout_candidate c = {.score = {legal, !why, seconds, bytes},
                                     .name = name,
                                     .why = why,
                                     .cause = why ? NULL : cause};
    cr_assert_eq(weft_layout_list_add(list, &c), WEFT_OK);
}

static const char *name_of(const weft_layout_list *list, int64_t i)
{
    return list->item[i].name;
}

Test(list, fitting_layouts_by_seconds_then_others_by_bytes_ties_by_name)
{
    static const char *const causes[] = {"one", "two"};
    weft_layout_list list = {.arena = weft_arena_create(), .cause = causes, .causes = 2};
    weft_buf why = {0};
    add(&list, "illegal", "not possible", false, 0, 0, 0, 0);
    add(&list, "large", "needs 9 bytes", true, 1, 9, 0, 0);
    add(&list, "less large", "needs 8 bytes", true, 2, 8, 0, 0);
    add(&list, "slow", NULL, true, 4, 1, 1, 3);
    add(&list, "fast b", NULL, true, 2, 3, 1, 1);
    add(&list, "fast a", NULL, true, 2, 3, 1, 1);
    add(&list, "fast c", NULL, true, 2, 2, 1, 1);
    weft_layout_list_sort(&list);
    static const char *const order[] = {"fast c",     "fast a", "fast b", "slow",
                                        "less large", "large",  "illegal"};
    for (int i = 0; i < WEFT_COUNT(order); i++)
        cr_expect_str_eq(name_of(&list, i), order[i]);
    cr_expect(list.fitting == 4 && list.legal == 6 && list.count == 7);
    cr_expect_eq(weft_layout_list_shown(&list, false), 4);
    cr_expect_eq(weft_layout_list_shown(&list, true), 7);
    weft_layout_list_explain(&list, 0, &why);
    cr_expect_eq(why.len, 0, "the best needs no reason");
    weft_layout_list_explain(&list, 3, &why);
    cr_expect(strstr(why.data, "100.0 %") && strstr(why.data, "two"), "%s", why.data);
    why.len = 0;
    weft_layout_list_explain(&list, 4, &why);
    cr_expect_str_eq(why.data, "needs 8 bytes");
    weft_layout_list_prefer(&list, 3);
    cr_expect_str_eq(name_of(&list, 0), "slow");
    cr_expect_str_eq(name_of(&list, 3), "fast b");
    cr_expect_eq(weft_layout_list_infeasible(&list, 2, WEFT_NOWHERE), WEFT_E_INFEASIBLE);
    cr_expect_eq(weft_error_class(), WEFT_MSG_PLAN_INFEASIBLE);
    weft_buf_free(&why);
    weft_arena_free(list.arena);
}
