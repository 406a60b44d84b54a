/* Criterion's parameterized tests, as far as these tests use them: one test that runs all
 * parameters in sequence, and ends at the first that fails an assertion. */
#ifndef WEFT_TESTS_PLAIN_CRITERION_PARAMETERIZED_H
#define WEFT_TESTS_PLAIN_CRITERION_PARAMETERIZED_H

#include "criterion.h"

#include <stddef.h>

struct plain_parameters {
    size_t size, count; /* bytes of a parameter */
    void *first;
};

#define cr_make_param_array(type, array, count)                                                    \
    ((struct plain_parameters){sizeof(type), count, array})
#define ParameterizedTestParameters(s, n) static struct plain_parameters s##_##n##_parameters(void)
#define ParameterizedTest(parameter, s, n)                                                         \
    static void s##_##n##_each(parameter);                                                         \
    Test(s, n)                                                                                     \
    {                                                                                              \
        const struct plain_parameters all = s##_##n##_parameters();                                \
        for (size_t i = 0; i < all.count; i++)                                                     \
            s##_##n##_each((void *)((char *)all.first + i * all.size));                            \
    }                                                                                              \
    static void s##_##n##_each(parameter)

#endif
