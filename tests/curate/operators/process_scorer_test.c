#include "base/fs.h"
#include "base/memory.h"
#include "curate/operators/process_scorer.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads a request and the frames; then come the lines of each case. */
#define READ                                                                                       \
    "read -r head; n=${head##*frames??}; n=${n%%,*}; "                                             \
    "head -c $((n * 4 * 2 * 3)) >/dev/null; r=${head##*request??}; r=${r%%,*}; "

static weft_operator_config config_of(const char **argv, int64_t count)
{
    return (weft_operator_config){.name = "own",
                                  .process = {.count = count, .item = argv},
                                  .timeout_seconds = 10,
                                  .min = WEFT_OPERATOR_NO_MIN,
                                  .max = WEFT_OPERATOR_NO_MAX};
}

static uint8_t pixels[2 * 4 * 2 * 3];

static weft_status_code score(weft_process_scorer *s, double *value)
{
    const weft_shot_frames frames = {.count = 2, .width = 4, .height = 2, .rgb = pixels};
    json_t *request = json_pack("{s:s}", "source", "a.mp4");
    const weft_status_code status = weft_process_scorer_score(s, request, &frames, value);
    json_decref(request);
    return status;
}

Test(process_scorer, one_process_scores_many_shots)
{
    signal(SIGPIPE, SIG_IGN);
    const char *argv[] = {"bash", "-c",
                          "k=0; while :; do " READ
                          "k=$((k + 1)); echo \"{\\\"request\\\": $r, \\\"score\\\": $k}\"; done"};
    const weft_operator_config c = config_of(argv, 3);
    weft_process_scorer *s;
    double value = 0;
    cr_assert_eq(weft_process_scorer_open(&c, NULL, NULL, &s), WEFT_OK);
    for (int i = 1; i <= 5; i++) {
        cr_assert_eq(score(s, &value), WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(value, i);
    }
    weft_process_scorer_close(s);
}

/* Each way to fail has its reason, and the next shot starts a new process. */
Test(process_scorer, failures_have_reasons)
{
    signal(SIGPIPE, SIG_IGN);
    static const struct {
        const char *script, *reason;
    } cases[] = {
        {"exit 3", "exit status 3"},
        {READ "echo 'Traceback:' >&2; echo 'no CUDA' >&2; exit 1", "exit status 1: no CUDA"},
        {READ "kill -9 $$", "signal 9"},
        {READ "echo nonsense; sleep 100", "no \"score\": nonsense"},
        {READ "echo '{\"request\": 1, \"points\": 1}'; sleep 100", "no \"score\""},
        {READ "echo '{\"request\": 1, \"score\": \"high\"}'; sleep 100", "no \"score\""},
        /* cat writes both lines at once; bash would write the first one alone */
        {READ "cat <<<$'{\"request\": 1, \"score\": 1}\\n{}'; sleep 100", "more than one line"},
        {READ "echo '{\"score\": 1}'; sleep 100", "\"request\": 1"},
        {READ "echo '{\"request\": 2, \"score\": 1}'; sleep 100", "\"request\": 1"},
        {READ "printf '{\"request\": 1, \"score\": 1e999}\\n'; sleep 100", "no \"score\""},
        {READ "head -c 100000 /dev/zero | tr '\\0' x; sleep 100", "longer than 64 KiB"},
        {READ "exec >&-; sleep 100", "closed its standard output"},
        {"exec /nowhere/program", "exit status 127"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *argv[] = {"bash", "-c", cases[i].script};
        const weft_operator_config c = config_of(argv, 3);
        weft_process_scorer *s;
        double value = 0;
        cr_assert_eq(weft_process_scorer_open(&c, NULL, NULL, &s), WEFT_OK);
        const weft_status_code status = score(s, &value);
        cr_assert_eq(status, WEFT_E_IO, "%s is accepted", cases[i].script);
        cr_assert_eq(weft_error_class(), WEFT_MSG_SCORER_FAILED);
        cr_assert(strstr(weft_error_text(), cases[i].reason), "%s: %s", cases[i].script,
                  weft_error_text());
        weft_process_scorer_close(s);
    }
}

/* A process that waits for ever is killed, with its children. */
Test(process_scorer, a_late_process_is_killed)
{
    signal(SIGPIPE, SIG_IGN);
    const char *argv[] = {"bash", "-c", "sleep 1000 & wait"};
    weft_operator_config c = config_of(argv, 3);
    weft_process_scorer *s;
    double value;
    c.timeout_seconds = 0.05;
    cr_assert_eq(weft_process_scorer_open(&c, NULL, NULL, &s), WEFT_OK);
    cr_assert_eq(score(s, &value), WEFT_E_IO);
    cr_assert(strstr(weft_error_text(), "timeout_seconds"), "%s", weft_error_text());
    weft_process_scorer_close(s);
}

/* A shot that the process refuses is not a failure of the process. */
Test(process_scorer, refused_shots_keep_the_process)
{
    signal(SIGPIPE, SIG_IGN);
    const char *argv[] = {
        "bash", "-c",
        "while :; do " READ
        "echo \"{\\\"request\\\": $r, \\\"failed\\\": \\\"no face in $$\\\"}\"; done"};
    const weft_operator_config c = config_of(argv, 3);
    weft_process_scorer *s;
    double value;
    char first[300];
    cr_assert_eq(weft_process_scorer_open(&c, NULL, NULL, &s), WEFT_OK);
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(score(s, &value), WEFT_E_IO);
        if (i == 0)
            snprintf(first, sizeof first, "%s", weft_error_text());
        cr_assert(strstr(weft_error_text(), "no face in"));
        cr_assert_str_eq(weft_error_text(), first);
    }
    weft_process_scorer_close(s);
}

/* A process that fails with every shot is not started for ever. */
Test(process_scorer, failures_in_sequence_end_the_attempts)
{
    signal(SIGPIPE, SIG_IGN);
    const char *argv[] = {"bash", "-c", "echo started >>starts; exit 2"};
    const weft_operator_config c = config_of(argv, 3);
    weft_process_scorer *s;
    double value;
    char *text;
    int64_t bytes;
    char folder[] = "/tmp/weft-process-XXXXXX";
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
    cr_assert_eq(weft_process_scorer_open(&c, NULL, NULL, &s), WEFT_OK);
    for (int i = 0; i < 6; i++)
        cr_assert_eq(score(s, &value), WEFT_E_IO);
    cr_assert(strstr(weft_error_text(), "3 times in sequence"), "%s", weft_error_text());
    cr_assert_eq(weft_file_read("starts", 1000, &text, &bytes), WEFT_OK);
    cr_assert_eq(bytes, 3 * (int64_t)strlen("started\n"));
    weft_free(text);
    weft_process_scorer_close(s);
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}
