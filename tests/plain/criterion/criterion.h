/* Criterion's macros, as far as these tests use them, where the library itself does not run: under
 * ThreadSanitizer
 * (`make tsan`), which needs the addresses at which Criterion shares memory with its workers, and
 * under an emulator
 * (`make test-arm64`). runner.c runs each test in a process of its own. */
#ifndef WEFT_TESTS_PLAIN_CRITERION_H
#define WEFT_TESTS_PLAIN_CRITERION_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct plain_test {
    const char *suite, *name;
    void (*run)(void);
    void (*init)(void), (*fini)(void);
    double timeout;
    int signal; /* number of the signal that ends the test; 0: none */
    struct plain_test *next;
};
void plain_register(struct plain_test *test);
void plain_check(bool ok, bool fatal, const char *file, int line, const char *what,
                 const char *message, ...) __attribute__((format(printf, 6, 7)));
void plain_skip(const char *message, ...) __attribute__((format(printf, 1, 2), noreturn));

#define Test(s, n, ...)                                                                            \
    static void s##_##n##_test(void);                                                              \
    __attribute__((constructor)) static void s##_##n##_register(void)                              \
    {                                                                                              \
        static struct plain_test test = {                                                          \
            .suite = #s, .name = #n, .run = s##_##n##_test, __VA_ARGS__};                          \
        plain_register(&test);                                                                     \
    }                                                                                              \
    static void s##_##n##_test(void)
/* A test without a name: defaults of the tests of its suite. */
#define TestSuite(s, ...)                                                                          \
    __attribute__((constructor)) static void s##_suite_register(void)                              \
    {                                                                                              \
        static struct plain_test suite = {.suite = #s, .name = "", __VA_ARGS__};                   \
        plain_register(&suite);                                                                    \
    }                                                                                              \
    extern int plain_suites

#define PLAIN_CHECK(ok, fatal, what, ...)                                                          \
    plain_check(ok, fatal, __FILE__, __LINE__, what, " " __VA_ARGS__)
#define PLAIN_COMPARE(a, op, b, fatal, ...)                                                        \
    PLAIN_CHECK((a)op(b), fatal, #a " " #op " " #b, __VA_ARGS__)

#define cr_assert(x, ...)            PLAIN_CHECK((bool)(x), true, #x, __VA_ARGS__)
#define cr_expect(x, ...)            PLAIN_CHECK((bool)(x), false, #x, __VA_ARGS__)
#define cr_assert_not(x, ...)        PLAIN_CHECK(!(x), true, "!" #x, __VA_ARGS__)
#define cr_expect_not(x, ...)        PLAIN_CHECK(!(x), false, "!" #x, __VA_ARGS__)
#define cr_assert_null(x, ...)       PLAIN_CHECK(!(x), true, "!" #x, __VA_ARGS__)
#define cr_expect_null(x, ...)       PLAIN_CHECK(!(x), false, "!" #x, __VA_ARGS__)
#define cr_expect_not_null(x, ...)   PLAIN_CHECK((x) != NULL, false, #x, __VA_ARGS__)
#define cr_assert_not_null(x, ...)   PLAIN_CHECK((x) != NULL, true, #x, __VA_ARGS__)
#define cr_assert_fail(...)          PLAIN_CHECK(false, true, "fail", __VA_ARGS__)
#define cr_assert_eq(a, b, ...)      PLAIN_COMPARE(a, ==, b, true, __VA_ARGS__)
#define cr_expect_eq(a, b, ...)      PLAIN_COMPARE(a, ==, b, false, __VA_ARGS__)
#define cr_assert_neq(a, b, ...)     PLAIN_COMPARE(a, !=, b, true, __VA_ARGS__)
#define cr_expect_neq(a, b, ...)     PLAIN_COMPARE(a, !=, b, false, __VA_ARGS__)
#define cr_assert_lt(a, b, ...)      PLAIN_COMPARE(a, <, b, true, __VA_ARGS__)
#define cr_expect_lt(a, b, ...)      PLAIN_COMPARE(a, <, b, false, __VA_ARGS__)
#define cr_assert_gt(a, b, ...)      PLAIN_COMPARE(a, >, b, true, __VA_ARGS__)
#define cr_expect_gt(a, b, ...)      PLAIN_COMPARE(a, >, b, false, __VA_ARGS__)
#define cr_assert_leq(a, b, ...)     PLAIN_COMPARE(a, <=, b, true, __VA_ARGS__)
#define cr_expect_leq(a, b, ...)     PLAIN_COMPARE(a, <=, b, false, __VA_ARGS__)
#define cr_assert_geq(a, b, ...)     PLAIN_COMPARE(a, >=, b, true, __VA_ARGS__)
#define cr_expect_geq(a, b, ...)     PLAIN_COMPARE(a, >=, b, false, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...)  PLAIN_CHECK(!strcmp(a, b), true, #a " is " #b, __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...)  PLAIN_CHECK(!strcmp(a, b), false, #a " is " #b, __VA_ARGS__)
#define cr_expect_fail(...)          PLAIN_CHECK(false, false, "fail", __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...) PLAIN_CHECK(strcmp(a, b), true, #a " is not " #b, __VA_ARGS__)
#define cr_expect_str_neq(a, b, ...) PLAIN_CHECK(strcmp(a, b), false, #a " is not " #b, __VA_ARGS__)
#define cr_assert_str_empty(a, ...)  PLAIN_CHECK(!*(a), true, #a " is empty", __VA_ARGS__)
#define cr_expect_str_empty(a, ...)  PLAIN_CHECK(!*(a), false, #a " is empty", __VA_ARGS__)
#define cr_assert_arr_eq(a, b, bytes, ...)                                                         \
    PLAIN_CHECK(!memcmp(a, b, bytes), true, #a " is " #b, __VA_ARGS__)
#define cr_expect_arr_eq(a, b, bytes, ...)                                                         \
    PLAIN_CHECK(!memcmp(a, b, bytes), false, #a " is " #b, __VA_ARGS__)
#define NEAR(a, b, eps) ((a) - (b) <= (eps) && (b) - (a) <= (eps))
#define cr_assert_float_eq(a, b, eps, ...)                                                         \
    PLAIN_CHECK(NEAR(a, b, eps), true, #a " is about " #b, __VA_ARGS__)
#define cr_expect_float_eq(a, b, eps, ...)                                                         \
    PLAIN_CHECK(NEAR(a, b, eps), false, #a " is about " #b, __VA_ARGS__)
#define cr_skip_test(...) plain_skip(" " __VA_ARGS__)
#define cr_skip(...)      plain_skip(" " __VA_ARGS__)
#define cr_log_info(...)  ((void)(fprintf(stderr, __VA_ARGS__), fputc('\n', stderr)))

#endif
