#include "graph/mesh.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

weft_status weft_mesh_parse(const char *text, weft_mesh *mesh)
{
    weft_mesh m = {0};
    for (const char *p = text; *p;) {
        const char *equal = strchr(p, '=');
        const size_t len = equal ? (size_t)(equal - p) : 0;
        if (!equal || len == 0 || len >= sizeof m.axis[0].name)
            return weft_error(WEFT_MSG_MESH_INVALID, WEFT_AT(.value = text),
                              "mesh \"%s\": write axes as name=size, e.g. dp=2,tp=3", text);
        if (m.axis_count == WEFT_MAX_AXES)
            return weft_error(WEFT_MSG_MESH_INVALID, WEFT_AT(.value = text),
                              "mesh \"%s\" has more than %d axes", text, WEFT_MAX_AXES);
        char *end;
        const long size = strtol(equal + 1, &end, 10);
        if (end == equal + 1 || size < 1 || size > 1 << 20 || (*end && *end != ','))
            return weft_error(WEFT_MSG_MESH_INVALID, WEFT_AT(.value = text),
                              "mesh \"%s\": the size of %.*s is not an integer from 1 to %d", text,
                              (int)len, p, 1 << 20);
        memcpy(m.axis[m.axis_count].name, p, len);
        m.axis[m.axis_count].size = (int)size;
        for (int i = 0; i < m.axis_count; i++)
            if (!strcmp(m.axis[i].name, m.axis[m.axis_count].name))
                return weft_error(WEFT_MSG_MESH_INVALID, WEFT_AT(.value = text),
                                  "mesh \"%s\" names axis %s twice", text, m.axis[i].name);
        m.axis_count++;
        p = *end == ',' ? end + 1 : end;
    }
    *mesh = m;
    return WEFT_OK;
}

int weft_mesh_ranks(const weft_mesh *mesh)
{
    int ranks = 1;
    for (int i = 0; i < mesh->axis_count; i++)
        ranks *= mesh->axis[i].size;
    return ranks;
}

int weft_mesh_axis(const weft_mesh *mesh, const char *name)
{
    for (int i = 0; i < mesh->axis_count; i++)
        if (!strcmp(mesh->axis[i].name, name))
            return i;
    return -1;
}

void weft_mesh_coordinates(const weft_mesh *mesh, int rank, int coordinate[WEFT_MAX_AXES])
{
    for (int i = mesh->axis_count - 1; i >= 0; i--) {
        coordinate[i] = rank % mesh->axis[i].size;
        rank /= mesh->axis[i].size;
    }
}

void weft_part(int64_t n, int parts, int index, int64_t *start, int64_t *len)
{
    const int64_t chunk = (n + parts - 1) / parts;
    const int64_t begin = chunk * index < n ? chunk * index : n;
    *start = begin;
    *len = n - begin < chunk ? n - begin : chunk;
}

int weft_part_dim(const weft_shape *shape, int parts)
{
    int best = shape->rank - 1;
    for (int d = shape->rank - 1; d >= 0; d--)
        best = shape->dim[d] >= shape->dim[best] ? d : best;
    for (int d = shape->rank - 1; d >= 0; d--)
        best = shape->dim[d] > 0 && shape->dim[d] % parts == 0 ? d : best;
    return best;
}
