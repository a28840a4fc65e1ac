import type { Node } from "@/api/types";
import { IconButton } from "@/components/Button";
import { Menu, MenuItem } from "@/components/Menu";
import { ACTION_LOOKS, useAsk } from "./actions";
import { actionsFor } from "./status";

export function RowMenu({ node }: { node: Node }) {
  const ask = useAsk();
  return (
    <Menu trigger={<IconButton icon="more" label={`Actions for ${node.name}`} />}>
      {actionsFor(node).map((action) =>
        // Approving has a button of its own beside the menu.
        action === "approve" ? null : (
          <MenuItem
            key={action}
            icon={ACTION_LOOKS[action].icon}
            danger={action === "remove"}
            onSelect={() => ask(action, node)}
          >
            {ACTION_LOOKS[action].word}
          </MenuItem>
        ),
      )}
    </Menu>
  );
}
