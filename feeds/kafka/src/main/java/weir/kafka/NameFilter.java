package weir.kafka;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.regex.Pattern;

/** Names, and patterns, which begin with `^`; none of both takes every name. */
record NameFilter(Set<String> names, List<Pattern> patterns) {

    static NameFilter of(List<String> texts) {
        Set<String> names = new HashSet<>();
        List<Pattern> patterns = new ArrayList<>();
        for (String text : texts) {
            if (text.startsWith("^")) {
                patterns.add(Pattern.compile(text));
            } else {
                names.add(text);
            }
        }
        return new NameFilter(names, patterns);
    }

    boolean takes(String name) {
        return (names.isEmpty() && patterns.isEmpty()) || names.contains(name)
                || patterns.stream().anyMatch(each -> each.matcher(name).find());
    }
}
