import { useEffect, useRef, useState } from "react";
import { Icon } from "./Icon";
import styles from "./SearchField.module.css";

interface SearchFieldProps {
  label: string;
  placeholder: string;
  text: string;
  onText: (text: string) => void;
}

export function SearchField({ label, placeholder, text, onText }: SearchFieldProps) {
  const input = useRef<HTMLInputElement>(null);
  // The field is ahead of the address while someone types, and follows it when it changes otherwise.
  const [typed, setTyped] = useState(text);
  const [sent, setSent] = useState(text);
  if (text !== sent) {
    setSent(text);
    if (text.trim() !== typed.trim()) setTyped(text);
  }

  useEffect(() => {
    function focusOnSlash(event: KeyboardEvent) {
      const target = event.target as HTMLElement;
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
      if (target.closest("input, textarea, [contenteditable], [role=dialog], [role=alertdialog], [role=menu]")) return;
      event.preventDefault();
      input.current?.focus();
      input.current?.select();
    }
    document.addEventListener("keydown", focusOnSlash);
    return () => document.removeEventListener("keydown", focusOnSlash);
  }, []);

  function change(next: string) {
    setTyped(next);
    setSent(next.trim() === "" ? "" : next);
    onText(next);
  }

  return (
    <div className={styles.search}>
      <Icon name="search" />
      <input
        ref={input}
        type="search"
        aria-label={label}
        aria-keyshortcuts="/"
        placeholder={placeholder}
        autoCapitalize="none"
        spellCheck={false}
        value={typed}
        onChange={(event) => change(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape" && typed !== "") {
            event.preventDefault();
            event.stopPropagation();
            change("");
          }
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}
