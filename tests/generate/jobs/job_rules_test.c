/* The table of the files of a job: each state and file has the action of the rules below, which are
 * written file by file. Also searches, runs that are killed in any state, and the documented table.
 * */
#include "base/config.h"
#include "base/fs.h"
#include "generate/jobs/job_rules.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const weft_job_form forms[] = {WEFT_JOB_ANY_FORM, WEFT_JOB_ONE_WINDOW, WEFT_JOB_CONTINUED};

/* ---- every cell ----------------------------------------------------------------------------- */

typedef enum when { ALWAYS, PLAIN, SAVING } when; /* without, with --save-latents */

/* Rules of docs/how-to/generate.md and docs/explanation/generation.md, by file. */
typedef struct rule {
    weft_job_file file;
    weft_job_state state;
    when when;
    weft_job_action action;
} rule;
static const rule rules[] = {
    /* The sampler state is replaced after a step, if the last write was long ago; an interrupt
     * always writes. */
    {WEFT_JOB_SAMPLER_STATE, WEFT_JOB_STEPPED, ALWAYS, WEFT_RULE_WRITE_DUE},
    {WEFT_JOB_SAMPLER_STATE, WEFT_JOB_STOPPED, ALWAYS, WEFT_RULE_WRITE},
    /* It belongs to a batch: removed after the latents of all its videos are written. */
    {WEFT_JOB_SAMPLER_STATE, WEFT_JOB_BATCH_DENOISED, ALWAYS, WEFT_RULE_REMOVE},
    {WEFT_JOB_SAMPLER_STATE, WEFT_JOB_BATCH_FINISHED, ALWAYS, WEFT_RULE_REMOVE},
    {WEFT_JOB_SAMPLER_STATE, WEFT_JOB_SAMPLING, ALWAYS, WEFT_RULE_RESUME},
    {WEFT_JOB_SAMPLER_STATE, WEFT_JOB_CHECKED, ALWAYS, WEFT_RULE_UNFINISHED},
    /* Latents are written before decoding, with the decoder's memory; an interrupted decoding did
     * not fail. */
    {WEFT_JOB_LATENTS, WEFT_JOB_DENOISED, ALWAYS, WEFT_RULE_WRITE_TRIED},
    {WEFT_JOB_LATENTS, WEFT_JOB_DECODER_STOPPED, ALWAYS, WEFT_RULE_WRITE},
    {WEFT_JOB_LATENTS, WEFT_JOB_UNFINISHED, ALWAYS, WEFT_RULE_DECODE},
    /* They are removed after the video, or retained with --save-latents. */
    {WEFT_JOB_LATENTS, WEFT_JOB_WRITTEN, PLAIN, WEFT_RULE_REMOVE},
    {WEFT_JOB_LATENTS, WEFT_JOB_WRITTEN, SAVING, WEFT_RULE_WRITE},
    {WEFT_JOB_LATENTS, WEFT_JOB_DECODED, PLAIN, WEFT_RULE_REMOVE},
    {WEFT_JOB_LATENTS, WEFT_JOB_FINISHED, PLAIN, WEFT_RULE_REMOVE},
    /* Retained latents do not make a finished video unfinished. */
    {WEFT_JOB_LATENTS, WEFT_JOB_CHECKED, PLAIN, WEFT_RULE_UNFINISHED},
    /* Each window of a continued video saves its latents until the video is written. */
    {WEFT_JOB_WINDOWS, WEFT_JOB_DENOISED, ALWAYS, WEFT_RULE_WRITE},
    {WEFT_JOB_WINDOWS, WEFT_JOB_SAMPLING, ALWAYS, WEFT_RULE_RESUME},
    {WEFT_JOB_WINDOWS, WEFT_JOB_WRITTEN, PLAIN, WEFT_RULE_REMOVE},
    {WEFT_JOB_WINDOWS, WEFT_JOB_FINISHED, PLAIN, WEFT_RULE_REMOVE},
    {WEFT_JOB_WINDOWS, WEFT_JOB_CHECKED, ALWAYS, WEFT_RULE_UNFINISHED},
    /* Without --resume a run removes the saved files and the list of an earlier one. */
    {WEFT_JOB_SAMPLER_STATE, WEFT_JOB_FRESH, ALWAYS, WEFT_RULE_REMOVE},
    {WEFT_JOB_LATENTS, WEFT_JOB_FRESH, ALWAYS, WEFT_RULE_REMOVE},
    {WEFT_JOB_WINDOWS, WEFT_JOB_FRESH, ALWAYS, WEFT_RULE_REMOVE},
    {WEFT_JOB_LIST, WEFT_JOB_FRESH, ALWAYS, WEFT_RULE_EMPTY},
    /* --resume keeps a finished video. A killed run may leave a partial line. */
    {WEFT_JOB_VIDEO, WEFT_JOB_CHECKED, ALWAYS, WEFT_RULE_FINISHED},
    {WEFT_JOB_VIDEO, WEFT_JOB_CHECKED_LIST, ALWAYS, WEFT_RULE_FINISHED},
    {WEFT_JOB_LIST, WEFT_JOB_CHECKED_LIST, ALWAYS, WEFT_RULE_MEND},
};

/* A job of one window saves no windows; a continued one saves nothing else before its video. */
static bool has_file(weft_job_form form, weft_job_file file)
{
    return form == WEFT_JOB_CONTINUED    ? file != WEFT_JOB_LATENTS
           : form == WEFT_JOB_ONE_WINDOW ? file != WEFT_JOB_WINDOWS
                                         : true;
}

/* The action by `rules`; KEEP if no rule applies. *count: rules that apply. */
static weft_job_action expected(weft_job_row row, weft_job_file file, int *count)
{
    weft_job_action action = WEFT_RULE_KEEP;
    *count = 0;
    for (int i = 0; i < WEFT_COUNT(rules) && has_file(row.form, file); i++) {
        const rule *r = &rules[i];
        if (r->file != file || r->state != row.state ||
            (r->when != ALWAYS && (r->when == SAVING) != row.saves))
            continue;
        action = r->action;
        ++*count;
    }
    return action;
}

Test(job_rules, every_state_and_file_has_one_action)
{
    int cells = 0;
    for (weft_job_state state = 0; state < WEFT_JOB_STATES; state++)
        for (int k = 0; k < WEFT_COUNT(forms) * 2; k++)
            for (weft_job_file file = 0; file < WEFT_JOB_FILES; file++, cells++) {
                const weft_job_row row = {state, forms[k / 2], k % 2};
                int count;
                const weft_job_action right = expected(row, file, &count),
                                      action = weft_job_rule(row, file);
                cr_expect_leq(count, 1, "state %d, file %d: %d rules", state, file, count);
                cr_expect_lt(action, WEFT_RULE_ACTIONS, "state %d, file %d", state, file);
                cr_expect_eq(action, right, "state %d, form %d, saves %d, file %d: %d, not %d",
                             state, row.form, row.saves, file, action, right);
            }
    cr_assert_eq(cells, WEFT_JOB_STATES * 3 * 2 * WEFT_JOB_FILES);
}

/* ---- searches ------------------------------------------------------------------------------- */

/* A folder: one entry per file. */
typedef struct disk {
    weft_job_found found[WEFT_JOB_FILES];
    bool asked[WEFT_JOB_FILES];
} disk;

static weft_status_code look(void *user, weft_job_file file, weft_job_found *found)
{
    disk *d = user;
    d->asked[file] = true;
    *found = d->found[file];
    return WEFT_OK;
}

/* Sets the files by the digits of `number`, base 3; returns whether it is in range. */
static bool fill(disk *d, int number)
{
    *d = (disk){0};
    for (weft_job_file file = 0; file < WEFT_JOB_FILES; file++, number /= 3)
        d->found[file] = (weft_job_found)(number % 3);
    return number == 0;
}

/* Whole: the file. Damaged: generated again, whatever else exists. */
static weft_job_file use(const disk *d, weft_job_file file)
{
    return d->found[file] == WEFT_JOB_WHOLE ? file : WEFT_JOB_FILES;
}

Test(job_rules, a_job_continues_from_its_most_advanced_file)
{
    disk d;
    for (int number = 0; fill(&d, number); number++)
        for (int k = 0; k < WEFT_COUNT(forms) * 2; k++) {
            const weft_job_form form = forms[k / 2];
            const bool windows =
                form != WEFT_JOB_ONE_WINDOW && d.found[WEFT_JOB_WINDOWS] != WEFT_JOB_MISSING;
            weft_job_file source;
            fill(&d, number);
            cr_assert_eq(
                weft_job_search((weft_job_row){WEFT_JOB_SAMPLING, form, k % 2}, look, &d, &source),
                WEFT_OK);
            cr_expect_eq(source, use(&d, windows ? WEFT_JOB_WINDOWS : WEFT_JOB_SAMPLER_STATE),
                         "disk %d, form %d: file %d", number, form, source);
            /* another window's state is not read, and latents were decoded before */
            cr_expect_eq(d.asked[WEFT_JOB_SAMPLER_STATE], !windows);
            cr_expect_not(d.asked[WEFT_JOB_LATENTS] || d.asked[WEFT_JOB_VIDEO]);
            fill(&d, number);
            cr_assert_eq(
                weft_job_search((weft_job_row){WEFT_JOB_UNFINISHED, WEFT_JOB_ANY_FORM, k % 2}, look,
                                &d, &source),
                WEFT_OK);
            cr_expect_eq(source, use(&d, WEFT_JOB_LATENTS), "disk %d: file %d", number, source);
            cr_expect_not(d.asked[WEFT_JOB_SAMPLER_STATE] || d.asked[WEFT_JOB_WINDOWS]);
        }
}

Test(job_rules, a_video_is_finished_if_no_later_run_has_begun)
{
    disk d;
    for (int number = 0; fill(&d, number); number++)
        for (int saves = 0; saves < 2; saves++) {
            const bool video = d.found[WEFT_JOB_VIDEO] != WEFT_JOB_MISSING,
                       begun = d.found[WEFT_JOB_SAMPLER_STATE] != WEFT_JOB_MISSING ||
                               d.found[WEFT_JOB_WINDOWS] != WEFT_JOB_MISSING ||
                               (!saves && d.found[WEFT_JOB_LATENTS] != WEFT_JOB_MISSING);
            bool finished;
            fill(&d, number);
            cr_assert_eq(weft_job_check((weft_job_row){WEFT_JOB_CHECKED, WEFT_JOB_ANY_FORM, saves},
                                        look, &d, &finished),
                         WEFT_OK);
            cr_expect_eq(finished, video && !begun, "disk %d, saves %d", number, saves);
            /* reading a video's tags is not free */
            cr_expect_eq(d.asked[WEFT_JOB_VIDEO], !begun, "disk %d, saves %d", number, saves);
            cr_assert_eq(
                weft_job_check((weft_job_row){WEFT_JOB_CHECKED_LIST, WEFT_JOB_ANY_FORM, saves},
                               look, &d, &finished),
                WEFT_OK);
            cr_expect_eq(finished, video, "disk %d in a list, saves %d", number, saves);
        }
}

static weft_status_code fail(void *user, weft_job_file file, weft_job_found *found)
{
    (void)user;
    (void)file;
    (void)found;
    return WEFT_E_MEMORY;
}

Test(job_rules, a_failed_search_is_an_error)
{
    weft_job_file source;
    bool finished;
    cr_expect_eq(weft_job_search((weft_job_row){.state = WEFT_JOB_SAMPLING}, fail, NULL, &source),
                 WEFT_E_MEMORY);
    cr_expect_eq(weft_job_check((weft_job_row){.state = WEFT_JOB_CHECKED}, fail, NULL, &finished),
                 WEFT_E_MEMORY);
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* States of a run that generates one video, and the file from which --resume continues after a kill
 * in that state; VIDEO: finished, FILES: from scratch. */
typedef struct moment {
    weft_job_state state;
    weft_job_file source;
} moment;
static const moment one_window[] = {{WEFT_JOB_FRESH, WEFT_JOB_FILES},
                                    {WEFT_JOB_STEPPED, WEFT_JOB_SAMPLER_STATE},
                                    {WEFT_JOB_STOPPED, WEFT_JOB_SAMPLER_STATE},
                                    {WEFT_JOB_DENOISED, WEFT_JOB_LATENTS},
                                    {WEFT_JOB_BATCH_DENOISED, WEFT_JOB_LATENTS},
                                    {WEFT_JOB_DECODER_STOPPED, WEFT_JOB_LATENTS},
                                    {WEFT_JOB_WRITTEN, WEFT_JOB_VIDEO}};
static const moment continued[] = {{WEFT_JOB_FRESH, WEFT_JOB_FILES},
                                   {WEFT_JOB_STEPPED, WEFT_JOB_SAMPLER_STATE},
                                   {WEFT_JOB_DENOISED, WEFT_JOB_WINDOWS},
                                   {WEFT_JOB_BATCH_DENOISED, WEFT_JOB_WINDOWS},
                                   {WEFT_JOB_DECODER_STOPPED, WEFT_JOB_WINDOWS},
                                   {WEFT_JOB_WRITTEN, WEFT_JOB_VIDEO}};

/* Performs the writes, then the removals of a state. */
static void perform(disk *d, weft_job_row row)
{
    for (int removes = 0; removes < 2; removes++)
        for (weft_job_file file = 0; file < WEFT_JOB_FILES; file++) {
            const weft_job_action action = weft_job_rule(row, file);
            if (removes && action == WEFT_RULE_REMOVE)
                d->found[file] = WEFT_JOB_MISSING;
            if (!removes && (action == WEFT_RULE_WRITE || action == WEFT_RULE_WRITE_DUE ||
                             action == WEFT_RULE_WRITE_TRIED))
                d->found[file] = WEFT_JOB_WHOLE;
        }
}

/* The file from which a resumed run of the job continues, by the states that it passes through. */
static weft_job_file resumes_from(disk *d, weft_job_form form, bool saves)
{
    weft_job_file source;
    bool finished;
    cr_assert_eq(weft_job_check((weft_job_row){WEFT_JOB_CHECKED_LIST, WEFT_JOB_ANY_FORM, saves},
                                look, d, &finished),
                 WEFT_OK);
    if (finished)
        return WEFT_JOB_VIDEO;
    cr_assert_eq(weft_job_search((weft_job_row){WEFT_JOB_UNFINISHED, WEFT_JOB_ANY_FORM, saves},
                                 look, d, &source),
                 WEFT_OK);
    if (source == WEFT_JOB_FILES)
        cr_assert_eq(
            weft_job_search((weft_job_row){WEFT_JOB_SAMPLING, form, saves}, look, d, &source),
            WEFT_OK);
    return source;
}

static void run_killed(const moment *all, int count, weft_job_form form, bool saves)
{
    disk d = {0};
    const weft_job_file latents = form == WEFT_JOB_CONTINUED ? WEFT_JOB_WINDOWS : WEFT_JOB_LATENTS;
    for (int i = 0; i < count; i++) {
        perform(&d, (weft_job_row){all[i].state, form, saves});
        if (all[i].state == WEFT_JOB_WRITTEN)
            d.found[WEFT_JOB_VIDEO] = WEFT_JOB_WHOLE;
        const weft_job_file from = resumes_from(&d, form, saves);
        cr_expect_eq(from, all[i].source, "form %d, killed in state %d: from file %d", form,
                     all[i].state, from);
    }
    /* a finished video has retained latents at most, and so has one whose run was killed after the
     * video and before their removal */
    for (int killed = 0; killed < 2; killed++) {
        for (weft_job_file file = 0; file < WEFT_JOB_VIDEO; file++)
            cr_expect_eq(d.found[file] != WEFT_JOB_MISSING, saves && file == latents,
                         "form %d, saves %d: file %d", form, saves, file);
        d.found[latents] = d.found[WEFT_JOB_SAMPLER_STATE] = WEFT_JOB_WHOLE;
        perform(&d, (weft_job_row){WEFT_JOB_FINISHED, WEFT_JOB_ANY_FORM, saves});
        perform(&d, (weft_job_row){WEFT_JOB_BATCH_FINISHED, WEFT_JOB_ANY_FORM, saves});
    }
    /* a run from scratch leaves nothing of an earlier one */
    for (weft_job_file file = 0; file < WEFT_JOB_VIDEO; file++)
        d.found[file] = WEFT_JOB_DAMAGED;
    perform(&d, (weft_job_row){WEFT_JOB_FRESH, WEFT_JOB_ANY_FORM, saves});
    for (weft_job_file file = 0; file < WEFT_JOB_VIDEO; file++)
        cr_expect_eq(d.found[file], WEFT_JOB_MISSING, "file %d was not removed", file);
}

Test(job_rules, a_killed_run_continues_and_leaves_no_file)
{
    for (int saves = 0; saves < 2; saves++) {
        run_killed(one_window, WEFT_COUNT(one_window), WEFT_JOB_ONE_WINDOW, saves);
        run_killed(continued, WEFT_COUNT(continued), WEFT_JOB_CONTINUED, saves);
    }
}

/* ---- the documented table ------------------------------------------------------------------- */

static const char *const words[WEFT_RULE_ACTIONS] = {[WEFT_RULE_KEEP] = "",
                                                     [WEFT_RULE_REMOVE] = "remove",
                                                     [WEFT_RULE_EMPTY] = "empty",
                                                     [WEFT_RULE_MEND] = "mend",
                                                     [WEFT_RULE_UNFINISHED] = "unfinished",
                                                     [WEFT_RULE_FINISHED] = "finished",
                                                     [WEFT_RULE_DECODE] = "decode",
                                                     [WEFT_RULE_RESUME] = "resume",
                                                     [WEFT_RULE_WRITE] = "write",
                                                     [WEFT_RULE_WRITE_DUE] = "write if due",
                                                     [WEFT_RULE_WRITE_TRIED] = "write, marked"};

/* The row of the page: "| state | action | action | ... |", "A / B" for B with --save-latents. */
static void print_row(const char *name, weft_job_state state, weft_buf *out)
{
    weft_buf_printf(out, "\n| `%s` |", name);
    for (weft_job_file file = 0; file < WEFT_JOB_FILES; file++) {
        const weft_job_action plain = weft_job_rule((weft_job_row){state, WEFT_JOB_ANY_FORM, false},
                                                    file),
                              saving = weft_job_rule((weft_job_row){state, WEFT_JOB_ANY_FORM, true},
                                                     file);
        weft_buf_printf(out, " %s", words[plain]);
        if (saving != plain)
            weft_buf_printf(out, " / %s", saving == WEFT_RULE_KEEP ? "keep" : words[saving]);
        weft_buf_printf(out, "%s|", words[plain][0] || saving != plain ? " " : "");
    }
    weft_buf_printf(out, "\n");
}

Test(job_rules, the_page_has_the_table)
{
    static const char *const names[WEFT_JOB_STATES] = {
#define WEFT_JOB_ROW(state, ...) #state,
#include "generate/jobs/job_rules.def"
#undef WEFT_JOB_ROW
    };
    const char *source = getenv("SRC");
    char *path = weft_path_join(source ? source : ".", "docs/explanation/generation.md"), *page;
    int64_t bytes;
    cr_assert_eq(weft_file_read(path, 1 << 20, &page, &bytes), WEFT_OK, "%s", weft_error_message());
    for (weft_job_state state = 0; state < WEFT_JOB_STATES; state++) {
        weft_buf row = {0};
        print_row(names[state], state, &row);
        cr_assert_eq(weft_buf_check(&row), WEFT_OK);
        cr_expect(strstr(page, row.data), "the page has no row:%s", row.data);
        weft_buf_free(&row);
    }
    weft_free(page);
    weft_free(path);
}
