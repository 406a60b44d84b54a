/* Children: the end of a long error stream is kept. */
#include "serve/child_process.h"

#include <criterion/criterion.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs a shell command to its end; its texts stay. */
static void run(const char *command, weft_child *child)
{
    char *argv[] = {"/bin/sh", "-c", (char *)command, NULL};
    const weft_child_start_options options = {
        .argv = argv, .folder = "/", .lock = -1, .with_output = true};
    cr_assert_eq(weft_child_start(&options, child), WEFT_OK);
    while (weft_child_read(child)) {
        struct pollfd fds[2] = {{child->output, POLLIN, 0}, {child->error, POLLIN, 0}};
        (void)poll(fds, 2, -1);
    }
    cr_assert_eq(weft_child_wait(child), 0);
}

Test(child_process, the_end_of_a_stream_is_kept)
{
    weft_child child;
    char command[160];
    const int64_t bytes = 5 * (int64_t)WEFT_CHILD_TEXT;
    snprintf(command, sizeof command,
             "yes 0123456 | head -c %lld | tee /dev/fd/2; printf last; printf end >&2",
             (long long)bytes);
    run(command, &child);
    const weft_buf *text = &child.error_text;
    cr_assert_eq(child.dropped + text->len, bytes + 3);
    cr_assert(text->len >= WEFT_CHILD_TEXT && text->len < 2 * WEFT_CHILD_TEXT);
    cr_assert_str_eq(text->data + text->len - 11, "0123456\nend");
    cr_assert_eq((int64_t)strlen(text->data), text->len);
    cr_assert_str_eq(child.output_text.data + child.output_text.len - 4, "last");
    weft_child_close(&child);
}

Test(child_process, a_short_stream_is_complete)
{
    weft_child child;
    run("printf out; printf err >&2", &child);
    cr_assert_str_eq(child.output_text.data, "out");
    cr_assert_str_eq(child.error_text.data, "err");
    cr_assert_eq(child.dropped, 0);
    weft_child_close(&child);
}

Test(child_process, input_is_written_and_read_text_is_dropped)
{
    char *argv[] = {"/bin/sh", "-c", "read -r x; echo \"first $x\" >&2; echo second >&2", NULL};
    const weft_child_start_options options = {
        .argv = argv, .folder = "/", .lock = -1, .with_input = true};
    weft_child child;
    cr_assert_eq(weft_child_start(&options, &child), WEFT_OK);
    cr_assert_eq(weft_child_write(&child, "line\n", 5), WEFT_OK);
    while (weft_child_read(&child)) {
        struct pollfd error = {child.error, POLLIN, 0};
        (void)poll(&error, 1, -1);
    }
    cr_assert_eq(weft_child_wait(&child), 0);
    cr_assert_str_eq(child.error_text.data, "first line\nsecond\n");
    weft_child_drop(&child, 11);
    cr_assert_str_eq(child.error_text.data, "second\n");
    cr_assert_eq(child.dropped, 11);
    signal(SIGPIPE, SIG_IGN);
    cr_assert_neq(weft_child_write(&child, "line\n", 5), WEFT_OK); /* it has ended */
    weft_child_close(&child);
}

Test(child_process, defaults_give_way_to_the_server)
{
    char *argv[] = {"/bin/sh", "-c", "printf %s-%s \"$WEFT_TEST_A\" \"$WEFT_TEST_B\"", NULL};
    const char *const defaults[] = {"WEFT_TEST_A=default", "WEFT_TEST_B=default"};
    const weft_child_start_options options = {.argv = argv,
                                              .folder = "/",
                                              .lock = -1,
                                              .with_output = true,
                                              .defaults = defaults,
                                              .default_count = 2};
    weft_child child;
    setenv("WEFT_TEST_A", "own", 1);
    unsetenv("WEFT_TEST_B");
    cr_assert_eq(weft_child_start(&options, &child), WEFT_OK);
    while (weft_child_read(&child)) {
        struct pollfd fds[2] = {{child.output, POLLIN, 0}, {child.error, POLLIN, 0}};
        (void)poll(fds, 2, -1);
    }
    cr_assert_eq(weft_child_wait(&child), 0);
    cr_assert_str_eq(child.output_text.data, "own-default");
    weft_child_close(&child);
}
