#include "generate/jobs/job_rules.h"

static const weft_job_action table[WEFT_JOB_STATES][WEFT_JOB_FILES] = {
#define WEFT_JOB_ROW(state, sampler_state, latents, windows, video, list)                          \
    [WEFT_JOB_##state] = {[WEFT_JOB_SAMPLER_STATE] = WEFT_RULE_##sampler_state,                    \
                          [WEFT_JOB_LATENTS] = WEFT_RULE_##latents,                                \
                          [WEFT_JOB_WINDOWS] = WEFT_RULE_##windows,                                \
                          [WEFT_JOB_VIDEO] = WEFT_RULE_##video,                                    \
                          [WEFT_JOB_LIST] = WEFT_RULE_##list},
#include "generate/jobs/job_rules.def"
#undef WEFT_JOB_ROW
};

weft_job_action weft_job_rule(weft_job_row row, weft_job_file file)
{
    const weft_job_action cell = table[row.state][file];
    if ((file == WEFT_JOB_LATENTS && row.form == WEFT_JOB_CONTINUED) ||
        (file == WEFT_JOB_WINDOWS && row.form == WEFT_JOB_ONE_WINDOW))
        return WEFT_RULE_KEEP;
    switch (cell) {
    case WEFT_RULE_REMOVE_OR_KEEP: return row.saves ? WEFT_RULE_KEEP : WEFT_RULE_REMOVE;
    case WEFT_RULE_REMOVE_OR_WRITE: return row.saves ? WEFT_RULE_WRITE : WEFT_RULE_REMOVE;
    case WEFT_RULE_UNFINISHED_OR_KEEP: return row.saves ? WEFT_RULE_KEEP : WEFT_RULE_UNFINISHED;
    default: return cell;
    }
}

weft_status weft_job_check(weft_job_row row, weft_job_find_fn *find, void *user, bool *finished)
{
    *finished = false;
    for (weft_job_file file = 0; file < WEFT_JOB_FILES; file++) {
        const weft_job_action action = weft_job_rule(row, file);
        weft_job_found found = WEFT_JOB_MISSING;
        if (action == WEFT_RULE_UNFINISHED || action == WEFT_RULE_FINISHED)
            WEFT_TRY(find(user, file, &found));
        if (found == WEFT_JOB_MISSING)
            continue;
        *finished = action == WEFT_RULE_FINISHED;
        return WEFT_OK;
    }
    return WEFT_OK;
}

weft_status weft_job_search(weft_job_row row, weft_job_find_fn *find, void *user,
                            weft_job_file *source)
{
    *source = WEFT_JOB_FILES;
    for (int i = WEFT_JOB_FILES - 1; i >= 0; i--) {
        const weft_job_file file = (weft_job_file)i;
        const weft_job_action action = weft_job_rule(row, file);
        weft_job_found found = WEFT_JOB_MISSING;
        if (action == WEFT_RULE_DECODE || action == WEFT_RULE_RESUME)
            WEFT_TRY(find(user, file, &found));
        if (found == WEFT_JOB_MISSING)
            continue;
        *source = found == WEFT_JOB_WHOLE ? file : WEFT_JOB_FILES;
        return WEFT_OK;
    }
    return WEFT_OK;
}
