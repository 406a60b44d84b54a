#include "comm/coll_tuning.h"

#include "base/config.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>

static const char format[] = "weft.collectives/1";

void weft_coll_tuning_free(weft_coll_tuning *c)
{
    weft_free(c->row);
    *c = (weft_coll_tuning){0};
}

weft_status weft_coll_tuning_add(weft_coll_tuning *c, const weft_coll_tuning_row *row)
{
    WEFT_TRY(weft_grow((void **)&c->row, c->count, &c->capacity, sizeof *c->row));
    c->row[c->count++] = *row;
    return WEFT_OK;
}

bool weft_coll_tuning_find(const weft_coll_tuning *c, weft_comm_op op, const weft_span *span,
                           int64_t bytes, bool is_16bit, weft_algorithm *algorithm)
{
    const weft_coll_tuning_row *found = NULL;
    for (int64_t i = 0; i < c->count; i++) {
        const weft_coll_tuning_row *row = &c->row[i];
        if (row->op == op && row->from <= bytes && weft_span_equal(&row->span, span) &&
            (!found || row->from >= found->from))
            found = row;
    }
    if (!found || !weft_algorithm_fits(found->algorithm, op, span, bytes, is_16bit))
        return false;
    *algorithm = found->algorithm;
    return true;
}

weft_status weft_coll_tuning_save(const weft_coll_tuning *c, const char *path)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < c->count && list; i++) {
        const weft_coll_tuning_row *row = &c->row[i];
        json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:i, s:I, s:s}", "op",
                                              weft_comm_op_name(row->op), "ranks", row->span.ranks,
                                              "nodes", row->span.nodes, "per_node",
                                              row->span.per_node, "from", (json_int_t)row->from,
                                              "algorithm", weft_algorithm_name(row->algorithm)));
    }
    json_t *json = list ? json_pack("{s:s, s:o}", "format", format, "choices", list) : NULL;
    const weft_status_code status =
        json ? weft_json_save(path, json) : weft_no_memory("a table of collectives");
    json_decref(json);
    return status;
}

static int find_name(const char *name, int count, const char *(*name_of)(int))
{
    for (int i = 0; i < count; i++)
        if (!strcmp(name_of(i), name))
            return i;
    return -1;
}

static const char *op_name(int op)
{
    return weft_comm_op_name((weft_comm_op)op);
}

static const char *algorithm_name(int algorithm)
{
    return weft_algorithm_name((weft_algorithm)algorithm);
}

static weft_status parse_row(const json_t *json, const char *name, size_t index,
                             weft_coll_tuning_row *row)
{
    static const char *const known[] = {"op",   "ranks",     "nodes", "per_node",
                                        "from", "algorithm", NULL};
    char where[256];
    const char *op, *algorithm;
    int64_t ranks, nodes, per_node;
    snprintf(where, sizeof where, "%s: choices[%zu]", name, index);
    WEFT_TRY(weft_json_only(json, where, known, WEFT_COUNT(known) - 1));
    WEFT_TRY(weft_json_get_string(json, "op", where, &op));
    WEFT_TRY(weft_json_get_string(json, "algorithm", where, &algorithm));
    WEFT_TRY(weft_json_get_i64(json, "ranks", where, &ranks));
    WEFT_TRY(weft_json_get_i64(json, "nodes", where, &nodes));
    WEFT_TRY(weft_json_get_i64(json, "per_node", where, &per_node));
    WEFT_TRY(weft_json_get_i64(json, "from", where, &row->from));
    const int o = find_name(op, WEFT_COMM_OP_COUNT, op_name),
              a = find_name(algorithm, WEFT_ALGORITHM_COUNT, algorithm_name);
    if (o < 0 || a < 0)
        return weft_error(WEFT_MSG_JSON_VALUE,
                          WEFT_AT(.file = where, .key = o < 0 ? "op" : "algorithm",
                                  .value = o < 0 ? op : algorithm),
                          "\"%s\" is not a known %s", o < 0 ? op : algorithm,
                          o < 0 ? "collective" : "algorithm");
    if (ranks < 1 || ranks > 1 << 20 || nodes < 1 || nodes > ranks || per_node < 0 ||
        per_node > ranks || row->from < 0)
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = where),
                          "%" PRId64 " ranks on %" PRId64 " nodes of %" PRId64 ", from %" PRId64
                          " bytes, are outside their "
                          "range; 1 <= nodes <= ranks, 0 <= per_node <= ranks and from >= 0",
                          ranks, nodes, per_node, row->from);
    row->op = (weft_comm_op)o;
    row->algorithm = (weft_algorithm)a;
    row->span = (weft_span){(int)ranks, (int)nodes, (int)per_node};
    return WEFT_OK;
}

weft_status weft_coll_tuning_parse(const char *text, int64_t bytes, const char *name,
                                   weft_coll_tuning *tuning)
{
    weft_coll_tuning found = {0};
    weft_coll_tuning_row row;
    json_t *json = NULL;
    const char *of;
    WEFT_TRY(weft_json_parse(text, bytes, name, &json));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_json_get_string(json, "format", name, &of));
    if (strcmp(of, format))
        WEFT_GO(weft_error(WEFT_MSG_FORMAT_UNKNOWN,
                           WEFT_AT(.file = name, .key = "format", .value = of),
                           "the file is of format \"%s\"; expected %s", of, format));
    const json_t *list = json_object_get(json, "choices");
    if (!json_is_array(list))
        WEFT_GO(weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = name, .key = "choices"),
                           "expected a list"));
    for (size_t i = 0; i < json_array_size(list); i++) {
        WEFT_GO(parse_row(json_array_get(list, i), name, i, &row));
        WEFT_GO(weft_coll_tuning_add(&found, &row));
    }
    weft_coll_tuning_free(tuning);
    *tuning = found;
    found = (weft_coll_tuning){0};
out:
    json_decref(json);
    weft_coll_tuning_free(&found);
    return status;
}
